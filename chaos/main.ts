import { interruptions } from "../src/local/interruption.ts";
import { disturbances } from "./disturbances.ts";
import { writeFigures, writeSoak } from "./document.ts";
import { readOptions } from "./options.ts";
import type { ChaosOptions } from "./options.ts";
import { plants } from "./plants.ts";
import type { Plant } from "./plants.ts";
import { createReporter, isRight } from "./report.ts";
import type { Reporter, Result } from "./report.ts";
import { openArena, runScenario } from "./run.ts";
import { killScenarios, randomScenario } from "./scenarios.ts";
import type { Scenario } from "./scenarios.ts";
import { soak } from "./soak.ts";

/**
 * `npm run chaos [-- --scenario NAME,…|worker|all] [--seed N] [--runs N] [--minutes N] [--soak] [--json]`: kills and disturbs real
 * processes while a load runs, then looks whether a payment was lost or doubled. docs/chaos.md says how to read it.
 */
const EXIT = { right: 0, failed: 1, usage: 2, wrong: 6, interrupted: 130 } as const;

async function main(): Promise<number> {
  let options: ChaosOptions;
  let scenarios: Scenario[];
  try {
    options = readOptions(process.argv.slice(2));
    scenarios = chosen(options);
    chosenPlants(options);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    return EXIT.usage;
  }
  if (options.isList) {
    for (const { name, about } of [...allScenarios(), ...plants().map(({ scenario }) => scenario)])
      process.stdout.write(`${name.padEnd(LIST_WIDTH)}${about}\n`);
    return EXIT.right;
  }
  const interruption = interruptions();
  const reporter = createReporter(options);
  const results: Result[] = [];
  try {
    await play(scenarios, { options, reporter, results, interrupted: interruption.signal });
  } finally {
    interruption.dispose();
  }
  reporter.end(results);
  if (!results.every(isRight)) return EXIT.wrong;
  return interruption.signal.aborted ? EXIT.interrupted : EXIT.right;
}

async function play(
  scenarios: readonly Scenario[],
  {
    options,
    reporter,
    results,
    interrupted,
  }: { options: ChaosOptions; reporter: Reporter; results: Result[]; interrupted: AbortSignal },
): Promise<void> {
  const { seed, runs, minutes, logs } = options;
  reporter.note(`seed ${seed}`);
  const signals =
    minutes === null ? [interrupted] : [interrupted, AbortSignal.timeout(minutes * 60_000)];
  const signal = AbortSignal.any(signals);
  const planted = chosenPlants(options);
  const visibilitySeconds = planted.length > 0 ? PLANT_VISIBILITY_SECONDS : null;
  const arena = await openArena({ visibilitySeconds, logs, log: reporter.note });
  try {
    for (const scenario of scenarios) {
      if (signal.aborted) break;
      const result = await runScenario(arena, scenario, {
        seed,
        runs,
        signal,
        note: reporter.note,
      });
      results.push(result);
      reporter.result(result);
      if (options.write !== null) writeFigures(options.write, [result]);
    }
    if (options.soak !== null && !signal.aborted) {
      const { note } = reporter;
      const result = await soak(arena, { ...options.soak, seed, faults: faults(), signal, note });
      results.push(result);
      reporter.result(result);
      if (options.write !== null) writeSoak(options.write, result);
    }
    for (const { scenario, expects, ...more } of planted) {
      if (signal.aborted) break;
      const run = { seed, runs, signal, note: reporter.note, quietMs: PLANT_QUIET_MS, ...more };
      const result = { ...(await runScenario(arena, scenario, run)), expected: expects };
      results.push(result);
      reporter.result(result);
    }
  } finally {
    await arena.close();
  }
}

const LIST_WIDTH = 32;
/** What was taken by a worker that died comes again after this, and must have come to its end within that. */
const PLANT_VISIBILITY_SECONDS = 5;
const PLANT_QUIET_MS = 9_000;

function faults(): Scenario[] {
  return [...killScenarios(), ...disturbances()];
}

function allScenarios(): Scenario[] {
  return [...faults(), randomScenario(faults())];
}

function chosenPlants({ plants: names }: ChaosOptions): Plant[] {
  return names.flatMap((name) => {
    const found = plants().filter(
      ({ scenario }) => name === "all" || scenario.name === `plant:${name}`,
    );
    if (found.length === 0) throw new Error(`no planted fault ${name}; --list names them all`);
    return found;
  });
}

/** By name, or by the word before the colon. */
function chosen({ scenarios: names }: ChaosOptions): Scenario[] {
  return names.flatMap((name) => {
    const found = allScenarios().filter(
      (scenario) =>
        name === "all" || scenario.name === name || scenario.name.startsWith(`${name}:`),
    );
    if (found.length === 0) throw new Error(`no scenario ${name}; --list names them all`);
    return found;
  });
}

// All that was started is stopped by now, and yet a native client's threads may hold the process.
process.exit(await main());
