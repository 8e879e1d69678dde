import {
  CancellationScope,
  allHandlersFinished,
  condition,
  makeContinueAsNewFunc,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  sleep,
  workflowInfo,
} from "@temporalio/workflow";
import type { PublishOutboxInput } from "../activities/publish-outbox.ts";
import type { PublishOutboxSummary } from "../activities/relay-progress.ts";
import { PUBLISH_WINDOW } from "./activity-options.ts";
import {
  relayDrainUpdate,
  relayPauseUpdate,
  relayResumeUpdate,
  relaySetRateUpdate,
  relayStatusQuery,
} from "./messages.ts";
import type { OutboxRelayInput, RelayState } from "./messages.ts";

const { publishOutbox } = proxyActivities<{
  publishOutbox(input: PublishOutboxInput): Promise<PublishOutboxSummary>;
}>({ ...PUBLISH_WINDOW, summary: "claim → send → mark, again and again for a minute" });

/** One activity a minute while idle: the Web UI reads as a log of progress, and the history stays small. */
const WINDOW_MS = 60_000;
/** A paused run wakes up this often to look whether it should continue as new. */
const PAUSE_LOOK = "1 minute";

/**
 * Publishes the outbox of one shard range, for ever. Its workflow id elects the leader; the leases of the rows decide
 * where a frozen one wakes up late, so two at once publish twice at worst and never mark wrongly.
 */
export async function outboxRelay(input: OutboxRelayInput): Promise<void> {
  let state: RelayState = input.state ?? {
    mode: "running",
    reason: null,
    since: new Date().toISOString(),
    eventsPerSecondMax: null,
    published: 0,
    lostLeases: 0,
  };
  let window: CancellationScope | undefined;
  const change = (to: Partial<RelayState>): RelayState => {
    state = { ...state, ...to };
    window?.cancel();
    return state;
  };
  const enter = (mode: RelayState["mode"], reason: string | null): RelayState =>
    change({ mode, reason, since: new Date().toISOString() });
  /** Answers when the batch in hand has ended, so that after it nothing more goes out. */
  const stop = async (mode: "paused" | "draining", reason: string): Promise<RelayState> => {
    enter(mode, reason);
    await condition(() => window === undefined);
    return state;
  };

  setHandler(relayStatusQuery, () => state, { description: "How this relay stands" });
  setHandler(relayPauseUpdate, async ({ reason }) => await stop("paused", reason), {
    description: "Publish nothing more until resumed",
  });
  setHandler(relayResumeUpdate, () => enter("running", null), { description: "Publish again" });
  setHandler(relayDrainUpdate, async () => await stop("draining", "drained on request"), {
    description: "Finish the batch in hand and end this relay",
  });
  setHandler(relaySetRateUpdate, ({ eventsPerSecondMax }) => change({ eventsPerSecondMax }), {
    description: "Publish at most so many events a second",
    validator: ({ eventsPerSecondMax }) => {
      if (eventsPerSecondMax === null) return;
      if (!Number.isInteger(eventsPerSecondMax) || eventsPerSecondMax < 1) {
        throw new Error("eventsPerSecondMax: expected null or an integer from 1");
      }
    },
  });

  const startedAt = Date.now();
  while (state.mode !== "draining" && !shouldContinueAsNew()) {
    setCurrentDetails(describe(state));
    if (state.mode === "paused") {
      await condition(() => state.mode !== "paused", PAUSE_LOOK, {
        summary: "paused: look whether to continue as new",
      });
      continue;
    }
    window = new CancellationScope();
    const summary = await runWindow(window, input, state.eventsPerSecondMax).finally(
      () => (window = undefined),
    );
    if (summary !== null) {
      state = {
        ...state,
        published: state.published + summary.published,
        lostLeases: state.lostLeases + summary.lostLeases,
      };
    }
  }
  await condition(allHandlersFinished);
  if (state.mode === "draining") return;
  // Temporal Cloud allows one new run a second and id.
  if (Date.now() - startedAt < 1_000) await sleep(1_000);
  await continueAsNewest({ ...input, state });
}

/** Before the history grows long, and where its worker's version isn't the current one any more. */
function shouldContinueAsNew(): boolean {
  const { continueAsNewSuggested, targetWorkerDeploymentVersionChanged } = workflowInfo();
  return continueAsNewSuggested || targetWorkerDeploymentVersionChanged;
}

/** A relay is pinned to a version, and would take it along; the next run goes to the current one and is pinned there. */
async function continueAsNewest(input: OutboxRelayInput): Promise<never> {
  const { targetWorkerDeploymentVersionChanged } = workflowInfo();
  return await makeContinueAsNewFunc<typeof outboxRelay>(
    targetWorkerDeploymentVersionChanged ? { initialVersioningBehavior: "AUTO_UPGRADE" } : {},
  )(input);
}

/**
 * Null where an update cut the window short and it couldn't say more: it had not started, or its worker died with it
 * (Temporal tries no cancelled activity again, it times out). A cancel of the workflow passes.
 */
async function runWindow(
  window: CancellationScope,
  { fromShard, toShard }: OutboxRelayInput,
  eventsPerSecondMax: number | null,
): Promise<PublishOutboxSummary | null> {
  try {
    return await window.run(
      async () =>
        await publishOutbox({ fromShard, toShard, windowMs: WINDOW_MS, eventsPerSecondMax }),
    );
  } catch (error) {
    if (CancellationScope.current().consideredCancelled || !window.consideredCancelled) throw error;
    return null;
  }
}

/** For the Web UI, where the counts of a window stand in its heartbeat until it ends. */
function describe({ mode, reason, since, eventsPerSecondMax, ...counts }: RelayState): string {
  const why = reason === null ? "" : `, because: ${reason}`;
  const done = `${counted(counts.published, "event")} published, ${counted(counts.lostLeases, "lease")} lost`;
  const told =
    mode === "running"
      ? `Before this minute: ${done}. Of this minute: see *Pending Activities*.`
      : `Until then: ${done}.`;
  const limit = eventsPerSecondMax === null ? "" : ` At most ${eventsPerSecondMax} a second.`;
  return `**${mode}** since ${readable(since)}${why}.\n\n${told}${limit}`;
}

/** `2026-12-01T06:37:24.852Z` as people write it. */
function readable(time: string): string {
  return time.replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

function counted(count: number, noun: string): string {
  return `${count === 0 ? "no" : count} ${noun}${count === 1 ? "" : "s"}`;
}
