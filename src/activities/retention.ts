import { setTimeout as delay } from "node:timers/promises";
import { cancellationSignal, heartbeat } from "@temporalio/activity";
import type { Database } from "../database/database.ts";
import { purgeInbox, purgeOutbox } from "../database/retention-queries.ts";
import type { PurgeInput, PurgedBatch } from "../database/retention-queries.ts";

export interface RetentionSummary {
  readonly outboxPurged: number;
  readonly inboxPurged: number;
}

export interface RetentionDependencies {
  readonly database: Database;
  readonly outboxRetentionMs: number;
  readonly inboxRetentionMs: number;
  /** @throws DomainError where the inbox would forget a message that the queues may still bring */
  readonly assertQueuesForget: () => Promise<void>;
  readonly heartbeat: (summary: RetentionSummary) => void;
  readonly signal: AbortSignal;
}

export interface RetentionActivities {
  readonly purge: () => Promise<RetentionSummary>;
}

/** Retention's one activity; see `purge` for what happens when it runs twice. */
export function createRetentionActivities(
  dependencies: Omit<RetentionDependencies, "heartbeat" | "signal">,
): RetentionActivities {
  return {
    purge: async () =>
      await purge({
        ...dependencies,
        heartbeat: (summary) => heartbeat(summary),
        signal: cancellationSignal(),
      }),
  };
}

const BATCH_ROWS_MAX = 1_000;
/** A breath between two batches, in which writers have the table's pages for themselves. */
const BREATH_MS = 20;
/** Of each table in a run; more is left for the next one. */
const BATCHES_MAX = 2_000;

/** Purges outbox and inbox in short transactions, also under load. Run twice, or cut short, it goes on where rows are left. */
export async function purge(dependencies: RetentionDependencies): Promise<RetentionSummary> {
  const { database, outboxRetentionMs, inboxRetentionMs } = dependencies;
  const counts = { outboxPurged: 0, inboxPurged: 0 };
  await inBatches(dependencies, outboxRetentionMs, async (input) => {
    const batch = await purgeOutbox(database, input);
    counts.outboxPurged += batch.purged;
    dependencies.heartbeat(counts);
    return batch;
  });
  await dependencies.assertQueuesForget();
  await inBatches(dependencies, inboxRetentionMs, async (input) => {
    const batch = await purgeInbox(database, input);
    counts.inboxPurged += batch.purged;
    dependencies.heartbeat(counts);
    return batch;
  });
  return counts;
}

async function inBatches(
  { signal }: RetentionDependencies,
  olderThanMs: number,
  purgeBatch: (input: PurgeInput) => Promise<PurgedBatch>,
): Promise<void> {
  let after: string | null = null;
  for (let batch = 0; batch < BATCHES_MAX && !signal.aborted; batch += 1) {
    const result: PurgedBatch = await purgeBatch({ olderThanMs, rowsMax: BATCH_ROWS_MAX, after });
    if (result.purged < BATCH_ROWS_MAX) return;
    after = result.after;
    await delay(BREATH_MS, undefined, { signal }).catch(() => undefined);
  }
}
