import { randomUUID } from "node:crypto";
import {
  claimRows,
  cursorAtStart,
  giveBack,
  markFailed,
  markPublished,
} from "../database/outbox-queries.ts";
import type { ClaimCursor, ClaimedRow } from "../database/outbox-queries.ts";
import type { Tx } from "../database/database.ts";
import type { AcceptedMessage, Publisher, UnsentMessage } from "../messaging/sns-publisher.ts";

export interface BatchInput {
  readonly fromShard: number;
  readonly toShard: number;
  readonly cursor: ClaimCursor;
}

export interface BatchDependencies {
  readonly database: Tx;
  readonly publisher: Publisher;
  readonly leaseMs: number;
  /** The longest that one call to the broker takes: none is started when less is left of the lease. */
  readonly sendTimeoutMs: number;
}

export interface BatchResult {
  readonly claimed: number;
  readonly published: number;
  readonly failed: number;
  readonly lostLeases: number;
  /** Why the broker took no more; null where nothing stood in the way. */
  readonly outage: string | null;
  readonly cursor: ClaimCursor;
}

const BATCH_ROWS_MAX = 100;
const ROWS_PER_AGGREGATE_MAX = 10;
/** A message at fault is tried this often, with growing pauses, before a person must look. */
const ATTEMPTS_MAX = 5;
/** What marking a batch takes at most, so that the mark still finds its lease. */
const MARK_MS = 1_000;
const RETRY_BASE_MS = 500;
const RETRY_CEILING_MS = 60_000;

/**
 * One step of the relay: claim → send → mark, no transaction open during the send. Run twice, or cut short anywhere,
 * it publishes again at most what was sent and not marked; a row is marked only under the lease that claimed it.
 */
export async function publishOutboxBatch(
  dependencies: BatchDependencies,
  input: BatchInput,
): Promise<BatchResult> {
  const { database, leaseMs, sendTimeoutMs } = dependencies;
  const sendUntil = Date.now() + leaseMs - sendTimeoutMs - MARK_MS;
  const leaseToken = randomUUID();
  const rows = await claimRows(database, {
    ...input,
    rowsMax: BATCH_ROWS_MAX,
    rowsPerAggregateMax: ROWS_PER_AGGREGATE_MAX,
    leaseToken,
    leaseMs,
  });
  const sent = await sendInWaves(dependencies, rows, { leaseToken, sendUntil });
  if (sent.unsettled.length > 0) await giveBack(database, sent.unsettled, leaseToken);
  const { published, failed, lostLeases, outage } = sent;
  return {
    claimed: rows.length,
    published,
    failed,
    lostLeases,
    outage,
    cursor: nextCursor(input, rows),
  };
}

/**
 * The n-th events of all aggregates go together: within one call nothing keeps an order, so a follower waits for the
 * receipt of its predecessor. A failed row takes its followers out of the batch and nobody else's.
 */
async function sendInWaves(
  { database, publisher }: BatchDependencies,
  rows: readonly ClaimedRow[],
  { leaseToken, sendUntil }: { leaseToken: string; sendUntil: number },
): Promise<{
  published: number;
  failed: number;
  lostLeases: number;
  outage: string | null;
  unsettled: string[];
}> {
  const queues = queuesByAggregate(rows);
  const unsettled = new Set(rows.map(({ messageId }) => messageId));
  const totals = { published: 0, failed: 0, lostLeases: 0 };
  let outage: string | null = null;
  while (queues.size > 0 && outage === null) {
    const wave = [...queues.values()].flatMap((queue) => queue.slice(0, 1));
    const { accepted, unsent } = await sendWave(publisher, wave, sendUntil);
    const marked = await markAccepted(database, accepted, leaseToken);
    totals.published += accepted.length;
    totals.lostLeases += accepted.length - marked;
    for (const { messageId } of accepted) unsettled.delete(messageId);

    outage = unsent.find(({ kind }) => kind !== "fault")?.error ?? null;
    for (const fault of unsent.filter(({ kind }) => kind === "fault")) {
      const row = wave.find(({ messageId }) => messageId === fault.messageId);
      if (row === undefined) continue;
      queues.delete(aggregateOf(row));
      unsettled.delete(fault.messageId);
      totals.failed += 1;
      await markFailed(database, { ...fault, retryInMs: retryAfter(row.attempts) }, leaseToken);
    }
    advance(queues);
  }
  return { ...totals, outage, unsettled: [...unsettled] };
}

/**
 * Where some got through and others met silence, each of those is tried once more alone: if it fails again and the
 * broker answers another question right after, the fault is its own. Throttling is never a message's fault.
 */
async function sendWave(
  publisher: Publisher,
  wave: readonly ClaimedRow[],
  sendUntil: number,
): Promise<{ accepted: AcceptedMessage[]; unsent: UnsentMessage[] }> {
  const accepted: AcceptedMessage[] = [];
  const unsent: UnsentMessage[] = [];
  for (const result of await publisher.publish(wave, sendUntil)) {
    if (result.kind === "accepted") accepted.push(result);
    else unsent.push(result);
  }
  if (accepted.length === 0) return { accepted, unsent };

  const settled = unsent.filter(({ kind }) => kind !== "outage");
  for (const { messageId } of unsent.filter(({ kind }) => kind === "outage")) {
    const alone = wave.filter((row) => row.messageId === messageId);
    const [result] = await publisher.publish(alone, sendUntil);
    if (result?.kind === "accepted") accepted.push(result);
    else if (result?.kind === "outage" && (await publisher.isReachable())) {
      settled.push({ ...result, kind: "fault" });
    } else if (result !== undefined) settled.push(result);
  }
  return { accepted, unsent: settled };
}

async function markAccepted(
  database: Tx,
  accepted: readonly AcceptedMessage[],
  leaseToken: string,
): Promise<number> {
  if (accepted.length === 0) return 0;
  return (await markPublished(database, accepted, leaseToken)).length;
}

function queuesByAggregate(rows: readonly ClaimedRow[]): Map<string, ClaimedRow[]> {
  const inOrder = rows.toSorted((left, right) =>
    Number(BigInt(left.aggregateVersion) - BigInt(right.aggregateVersion)),
  );
  return Map.groupBy(inOrder, aggregateOf);
}

function advance(queues: Map<string, ClaimedRow[]>): void {
  for (const [aggregate, queue] of queues) {
    if (queue.length > 1) queues.set(aggregate, queue.slice(1));
    else queues.delete(aggregate);
  }
}

function aggregateOf({ aggregateType, aggregateId }: ClaimedRow): string {
  return `${aggregateType}:${aggregateId}`;
}

function retryAfter(attempts: number): number | null {
  if (attempts + 1 >= ATTEMPTS_MAX) return null;
  return Math.min(RETRY_BASE_MS * 4 ** attempts, RETRY_CEILING_MS);
}

/** A full batch says that more may follow behind it; anything less, that the end of the range was reached. */
function nextCursor({ fromShard }: BatchInput, rows: readonly ClaimedRow[]): ClaimCursor {
  if (rows.length < BATCH_ROWS_MAX) return cursorAtStart(fromShard);
  return rows.reduce<ClaimCursor>(
    (last, row) => (isAfter(row, last) ? row : last),
    cursorAtStart(fromShard),
  );
}

/** Compares as the index does: its text columns are COLLATE "C", and these ids are ASCII. */
function isAfter(left: ClaimCursor, right: ClaimCursor): boolean {
  if (left.shard !== right.shard) return left.shard > right.shard;
  if (left.aggregateType !== right.aggregateType) return left.aggregateType > right.aggregateType;
  return left.aggregateId > right.aggregateId;
}
