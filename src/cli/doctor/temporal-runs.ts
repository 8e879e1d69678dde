import type { Client } from "@temporalio/client";
import { runningRelayIds } from "../../client/running-relays.ts";
import { workflowIds } from "../../domain/ids.ts";
import { TASK_QUEUES } from "../../workflows/messages.ts";
import { shardRanges } from "../../worker/relay-ranges.ts";
import { judgeSkew } from "./clock.ts";
import type { TemporalContext } from "./temporal.ts";
import { fail, notJudged, ok, warn } from "./check.ts";
import type { Check, Finding } from "./check.ts";
import { relayStatuses, relayText } from "../relay.ts";

/** A poll lasts a minute, and Temporal lists one that died for five: what was silent for longer than a poll is dead. */
const POLL_AGE_MS_MAX = 90_000;
/** Temporal's task queue types. */
const QUEUE_TYPES = [
  { name: "workflow", taskQueueType: 1 },
  { name: "activity", taskQueueType: 2 },
] as const;
/** Temporal's state of an activity that a worker has in hand. */
const ACTIVITY_STARTED = 2;
/** A relay reports every second; this old a report says that it has stopped, or that the clocks differ. */
const HEARTBEAT_AGE_MS_MAX = 30_000;

/** Whether the work is done: somebody polls, and the relays run. */
export const RUN_CHECKS: readonly Check<TemporalContext>[] = [
  {
    name: "temporal.workers",
    about: "workers poll every task queue: payments, manual-payments, relay, ledger",
    judge: judgeWorkers,
  },
  {
    name: "temporal.relays",
    about: "one relay runs for each range of shards, none is paused and none waits for its broker",
    judge: judgeRelays,
  },
  {
    name: "temporal.clock",
    about: "Temporal's clock and this machine's agree, as far as the relays' reports tell",
    judge: judgeTemporalClock,
  },
];

interface Polled {
  readonly queue: string;
  readonly newestMs: number;
}

async function pollsOf({ client, namespace, ask }: TemporalContext): Promise<Polled[]> {
  const asked = Object.values(TASK_QUEUES).flatMap((name) =>
    QUEUE_TYPES.map(async (type) => {
      const { pollers } = await ask(
        async () =>
          await client.workflowService.describeTaskQueue({
            namespace,
            taskQueue: { name },
            taskQueueType: type.taskQueueType,
          }),
      );
      const times = (pollers ?? []).map(({ lastAccessTime }) => timeOf(lastAccessTime) ?? 0);
      return { queue: `${name} (${type.name} tasks)`, newestMs: Math.max(0, ...times) };
    }),
  );
  return await Promise.all(asked);
}

async function judgeWorkers(context: TemporalContext): Promise<Finding> {
  const polled = await pollsOf(context);
  const deserted = polled.filter(({ newestMs }) => context.now() - newestMs > POLL_AGE_MS_MAX);
  if (deserted.length === 0) return ok(Object.values(TASK_QUEUES).join(", "));
  return fail(
    `nobody polls ${deserted.map(({ queue }) => queue).join(", ")}`,
    "start a worker: remit worker (or with --role for the missing one), in this namespace",
  );
}

async function judgeRelays({ client, settings }: TemporalContext): Promise<Finding> {
  const wanted = shardRanges(settings.worker.relayRanges).map(workflowIds.outboxRelay);
  const relays = await relayStatuses(client);
  const ids = relays.map(({ workflowId }) => workflowId);
  const missing = wanted.filter((id) => !ids.includes(id));
  const others = ids.filter((id) => !wanted.includes(id));
  if (missing.length > 0) {
    return fail(
      `missing: ${missing.join(", ")}; its events wait`,
      "start a worker with the roles payments and relay; within a minute the supervisor starts it",
    );
  }
  const silent = relays.filter(({ state }) => state === "unreachable");
  if (silent.length > 0) {
    const names = silent.map(({ workflowId }) => workflowId).join(", ");
    return fail(`nobody works on ${names}`, "start a worker: remit worker --role relay");
  }
  if (others.length > 0) {
    return warn(
      `of another number of ranges: ${others.join(", ")}`,
      "give all workers one REMIT_RELAY_SHARDS; the supervisor drains what is left over",
    );
  }
  const stopped = relays.filter(({ state, reason }) => state !== "running" || reason !== null);
  const [first] = stopped;
  if (first === undefined) return ok(`${ids.join(", ")} running`);
  const fix =
    first.state === "paused" ? "remit relay resume" : "mend what the reason names: see broker.*";
  return warn(stopped.map(relayText).join("; "), fix);
}

/** Temporal tells no time: what it has stamped last must lie a moment ago. */
async function judgeTemporalClock(context: TemporalContext): Promise<Finding> {
  const heartbeats = await heartbeatsOf(context.client, context.ask);
  const newest = Math.max(0, ...heartbeats);
  if (newest === 0) return notJudged("no relay reports, see temporal.relays");
  const ageMs = context.now() - newest;
  const skew = { whose: "Temporal's", skewMs: -ageMs, blurMs: 0 };
  if (ageMs < 0 || ageMs > HEARTBEAT_AGE_MS_MAX) return judgeSkew(skew);
  return ok("Temporal's clock agrees");
}

async function heartbeatsOf(client: Client, ask: TemporalContext["ask"]): Promise<number[]> {
  const relays = await runningRelayIds(client);
  const described = await Promise.all(
    relays.map(
      async (workflowId) =>
        await ask(async () => await client.workflow.getHandle(workflowId).describe()),
    ),
  );
  return described.flatMap(({ raw }) =>
    (raw.pendingActivities ?? [])
      // One whose worker died keeps its last report, which says nothing of the clocks.
      .filter(({ state }) => state === ACTIVITY_STARTED)
      .flatMap(({ lastHeartbeatTime }) => timeOf(lastHeartbeatTime) ?? []),
  );
}

function timeOf(
  time: { readonly seconds?: unknown; readonly nanos?: number | null } | null | undefined,
): number | null {
  const ms = Number(time?.seconds ?? 0) * 1_000 + Math.floor((time?.nanos ?? 0) / 1_000_000);
  return ms === 0 ? null : ms;
}
