import {
  claimBatch,
  claimSuspectBatch,
  sendBatch,
} from "../../src/activities/publish-outbox-batch.ts";
import type { BatchResult } from "../../src/activities/publish-outbox-batch.ts";
import { cursorAtStart } from "../../src/database/outbox-queries.ts";
import type { Publisher } from "../../src/messaging/sns-publisher.ts";
import type { TestDatabase } from "./database.ts";

/** One step of the relay over all shards: claim, send, mark; then one row that is under suspicion. */
export async function relayOnce(
  { app }: TestDatabase,
  publisher: Publisher,
  { sendTimeoutMs = 3_000 } = {},
): Promise<BatchResult & { claimed: number; failed: number }> {
  const dependencies = { database: app, publisher, leaseMs: 10_000, sendTimeoutMs };
  const range = { fromShard: 0, toShard: 63, cursor: cursorAtStart(0), rowsMax: 100 };
  const batch = await claimBatch(dependencies, range);
  const result = await sendBatch(dependencies, batch);
  const suspect = batch.hasSuspects ? await claimSuspectBatch(dependencies, range) : null;
  if (suspect !== null) await sendBatch(dependencies, suspect);
  return { ...result, claimed: batch.rows.length, failed: result.failures.length };
}
