import type { Client } from "@temporalio/client";
import type { Settings } from "../config/settings.ts";
import { readStackFile } from "../config/stack-file.ts";
import type { StackFile } from "../config/stack-file.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { withDatabase, withTemporal } from "./context.ts";
import { PAUSE_REASON } from "./demo-refusals.ts";
import { SCENARIO_NAMES, playScenario, playStandard } from "./demo-scenarios.ts";
import type { ScenarioName } from "./demo-scenarios.ts";
import type { Stage } from "./demo-stage.ts";
import { createUndo } from "./demo-undo.ts";
import type { Undo } from "./demo-undo.ts";
import { reportableProblem } from "./problem.ts";
import { relayStatuses, resumeRelays } from "./relay.ts";
import { createStory } from "./story.ts";
import type { StoryOutput } from "./story.ts";

export interface DemoInput {
  readonly settings: Settings;
  readonly output: StoryOutput;
  /** One payment and what may happen to it, unless said. */
  readonly scenario?: ScenarioName | "all" | undefined;
  /** What it breaks on purpose; whoever interrupts the demo mends it. */
  readonly undo?: Undo;
  /** The stack's processes now; from its file unless said. */
  readonly processes?: () => StackFile["processes"];
}

/**
 * Plays, and returns the exit code: 0, or 6 where something that it claims doesn't hold.
 * Each run has keys of its own, so it can be played again and again.
 */
export async function playDemo(input: DemoInput): Promise<number> {
  const { settings, scenario } = input;
  const story = createStory(input.output);
  const undo = input.undo ?? createUndo();
  const processes = input.processes ?? ((): StackFile["processes"] => processesOf(settings));
  try {
    await withDatabase(settings, async (database) => {
      await withTemporal(settings, async ({ client, payments }) => {
        await assertRelaysRun(client);
        const run = `demo-${Date.now()}`;
        const stage = { settings, database, client, payments, story, run, processes, undo };
        await play(stage, scenario);
      });
    });
    story.end();
    return 0;
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== "verify") throw error;
    story.break(reportableProblem(error));
    return ERROR_CODES.verify.exit;
  }
}

async function play(stage: Stage, scenario: DemoInput["scenario"]): Promise<void> {
  if (scenario === undefined) {
    await playStandard(stage);
    return;
  }
  for (const name of scenario === "all" ? SCENARIO_NAMES : [scenario]) {
    await playScenario(stage, name);
  }
}

/** A pause of an earlier demo that was killed is ended; anybody else's is theirs to end. */
async function assertRelaysRun(client: Client): Promise<void> {
  const paused = (await relayStatuses(client)).filter(({ state }) => state === "paused");
  const [foreign] = paused.filter(({ reason }) => reason !== PAUSE_REASON);
  if (foreign !== undefined) {
    throw new DomainError(
      "usage",
      `the relay is paused (${foreign.reason ?? "no reason"}), so nothing would be booked: remit relay resume`,
    );
  }
  if (paused.length > 0) await resumeRelays(client);
}

function processesOf({ stackPath }: Settings): StackFile["processes"] {
  return (stackPath === undefined ? null : readStackFile(stackPath))?.processes ?? [];
}
