import type { Command } from "commander";
import { Option } from "commander";
import { join, resolve } from "node:path";
import { hasNamedTargets } from "../config/process-settings.ts";
import { DEFAULT_DATA_DIR, STACK_FILE_NAME, settingsFromStack } from "../config/settings.ts";
import type { Settings } from "../config/settings.ts";
import { isProcessAlive, readStackFile } from "../config/stack-file.ts";
import { DomainError } from "../domain/errors.ts";
import { INTERRUPTED, interruptions } from "../local/interruption.ts";
import type { Interruption } from "../local/interruption.ts";
import { withOwnStack } from "../local/own-stack.ts";
import { contextOf } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { seedAccounts } from "./demo-accounts.ts";
import { playDemo } from "./demo-play.ts";
import type { DemoInput } from "./demo-play.ts";
import { SCENARIO_NAMES } from "./demo-scenarios.ts";
import { createUndo } from "./demo-undo.ts";
import { addCommand } from "./options.ts";

interface DemoOptions {
  readonly scenario?: NonNullable<DemoInput["scenario"]>;
}

/** `remit demo`: payments with all that may happen to them, on the stack that runs or on one for this time. */
export function registerDemo(program: Command): void {
  addCommand(program, {
    name: "demo",
    about: "play payments with what may happen to them, and check every claim",
    examples: [
      "remit demo                        one payment, its repeats and a refusal",
      "remit demo --scenario crash       kill -9 between SNS's answer and the mark",
      "remit demo --scenario all --json",
    ],
  })
    .addOption(new Option("--scenario <name>", "what to play").choices([...SCENARIO_NAMES, "all"]))
    .action(async ({ scenario }: DemoOptions, command: Command) => {
      const context = contextOf(command);
      const { dataDir = DEFAULT_DATA_DIR } = command.optsWithGlobals<{ dataDir?: string }>();
      const code = isStackRunning(dataDir)
        ? await playOnRunning(context, scenario)
        : await playOnOwn(context, {
            scenario,
            dataDir,
            isGiven: command.optsWithGlobals()["dataDir"] !== undefined,
          });
      // What was under way when the signal came still waits for an answer.
      if (code === INTERRUPTED) process.exit(code);
      process.exitCode = code;
    });
}

function isStackRunning(dataDir: string): boolean {
  const stack = readStackFile(join(resolve(dataDir), STACK_FILE_NAME));
  return stack !== null && isProcessAlive(stack.pid);
}

async function playOnRunning(
  context: CommandContext,
  scenario: DemoInput["scenario"],
): Promise<number> {
  const settings = context.settings(["database", "broker"]);
  if (settings.source !== "stack") throw notEmbedded();
  const interruption = interruptions();
  try {
    return await playUntilInterrupted({ settings, scenario, context, interruption });
  } finally {
    interruption.dispose();
  }
}

/** Starts a stack, plays on it, and ends it; the story is the result, and how the stack does goes to stderr. */
async function playOnOwn(
  context: CommandContext,
  {
    scenario,
    dataDir,
    isGiven,
  }: { scenario: DemoInput["scenario"]; dataDir: string; isGiven: boolean },
): Promise<number> {
  if (!isGiven && hasNamedTargets()) throw notEmbedded();
  const print = context.output.err;
  return await withOwnStack(
    { directory: dataDir, fresh: false, print },
    async ({ stack, interruption }) => {
      print("");
      return await playUntilInterrupted({
        settings: settingsFromStack(stack.file()),
        scenario,
        context,
        interruption,
        processes: () => stack.file().processes,
      });
    },
  );
}

async function playUntilInterrupted({
  context,
  interruption,
  ...input
}: Pick<DemoInput, "settings" | "scenario" | "processes"> & {
  settings: Settings;
  context: CommandContext;
  interruption: Interruption;
}): Promise<number> {
  const undo = createUndo();
  const play = async (): Promise<number> => {
    await seedAccounts(input.settings);
    const output = { print: context.output.out, json: context.isJson };
    return await playDemo({ ...input, output, undo });
  };
  const interrupted = async (): Promise<number> => {
    await interruption.happened;
    await undo.all();
    return INTERRUPTED;
  };
  return await Promise.race([play(), interrupted()]);
}

/** It makes money out of nothing (world:EUR) and kills processes: no ledger that counts is the place for it. */
function notEmbedded(): DomainError {
  return new DomainError("usage", "the demo plays on the embedded stack alone: npm start");
}
