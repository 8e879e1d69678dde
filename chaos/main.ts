import { interruptions } from "../src/local/interruption.ts";
import { allScenarios, plantsNamed, scenariosNamed } from "./catalogue.ts";
import { enterOwnMounts } from "./disks.ts";
import { readOptions } from "./options.ts";
import type { ChaosOptions } from "./options.ts";
import { play } from "./play.ts";
import type { Program } from "./play.ts";
import { plants } from "./plants.ts";
import { createReporter, isRight } from "./report.ts";
import type { Reporter, Result } from "./report.ts";

/**
 * `npm run chaos [-- --scenario NAME,…|worker|all] [--seed N] [--runs N] [--minutes N] [--soak] [--json]`: kills and disturbs
 * real processes while a load runs, then looks whether a payment was lost or doubled. docs/chaos.md says how to read it.
 */
const EXIT = { right: 0, failed: 1, usage: 2, wrong: 6, interrupted: 130 } as const;

async function main(): Promise<number> {
  let options: ChaosOptions;
  let program: Program;
  try {
    options = readOptions(process.argv.slice(2));
    program = {
      scenarios: scenariosNamed(options.scenarios),
      plants: plantsNamed(options.plants),
    };
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return EXIT.usage;
  }
  if (options.isList) {
    for (const { name, about } of [...allScenarios(), ...plants().map(({ scenario }) => scenario)])
      process.stdout.write(`${name.padEnd(LIST_WIDTH)}${about}\n`);
    return EXIT.right;
  }
  // Before anything is said: it may replace this process by one that says it again.
  const problem = program.scenarios.some(({ needsDisks }) => needsDisks) ? enterOwnMounts() : null;
  const reporter = createReporter(options);
  if (problem !== null) program = withoutDisks(program, { problem, note: reporter.note });
  const interruption = interruptions();
  const results: Result[] = [];
  try {
    await play(program, { options, reporter, results, interrupted: interruption.signal });
  } finally {
    interruption.dispose();
  }
  reporter.end(results);
  if (!results.every(isRight)) return EXIT.wrong;
  return interruption.signal.aborted ? EXIT.interrupted : EXIT.right;
}

const LIST_WIDTH = 32;

function withoutDisks(
  program: Program,
  { problem, note }: { problem: string; note: Reporter["note"] },
): Program {
  const scenarios = program.scenarios.filter(({ name, needsDisks }) => {
    if (needsDisks) note(`${name} SKIPPED: no disk can be mounted for it (${problem})`);
    return !needsDisks;
  });
  return { ...program, scenarios };
}

// All that was started is stopped by now, and yet a native client's threads may hold the process.
process.exit(await main());
