import { randomUUID } from "node:crypto";
import {
  claimRows,
  claimSuspect,
  claimsAlone,
  giveBack,
  markFailed,
  markPublished,
} from "../database/outbox-queries.ts";
import type { ClaimCursor, ClaimedRow, FailedRow, MarkedRow } from "../database/outbox-queries.ts";
import type { Tx } from "../database/database.ts";
import type { AcceptedMessage, Publisher, UnsentMessage } from "../messaging/sns-publisher.ts";

export interface ClaimBatchInput {
  readonly fromShard: number;
  readonly toShard: number;
  readonly cursor: ClaimCursor;
  readonly rowsMax: number;
}

export interface BatchDependencies {
  readonly database: Tx;
  readonly publisher: Publisher;
  readonly leaseMs: number;
  /** The longest that one call to the broker takes: none is started when less is left of the lease. */
  readonly sendTimeoutMs: number;
}

/** Rows under a lease of their own. */
export interface ClaimedBatch {
  readonly rows: readonly ClaimedRow[];
  readonly leaseToken: string;
  /** No call to the broker starts after this (ms since the epoch), so that the mark finds its lease. */
  readonly sendUntil: number;
  /** Where the next claim goes on; null where this one saw the rest of the range. */
  readonly next: ClaimCursor | null;
  /** Of what it looked at, it took all that was due: no row was left for the sake of a limit. */
  readonly isWhole: boolean;
  /** It saw rows that were claimed again and again without a result: each is claimed alone, with nothing else in flight. */
  readonly hasSuspects: boolean;
}

export type SentBatch = Pick<ClaimedBatch, "rows" | "leaseToken" | "sendUntil">;

export interface BatchResult {
  /** What the broker took, marked or not. */
  readonly published: number;
  readonly marked: readonly MarkedRow[];
  readonly failures: readonly BatchFailure[];
  readonly lostLeases: number;
  /** Why the broker took no more; null where nothing stood in the way. */
  readonly outage: string | null;
}

/** A message that is at fault itself; dead where it is not tried again. */
export interface BatchFailure {
  readonly messageId: string;
  readonly aggregateId: string;
  readonly error: string;
  readonly isDead: boolean;
}

const ROWS_PER_AGGREGATE_MAX = 10;
/** A message at fault is tried this often, with growing pauses, before a person must look. */
const ATTEMPTS_MAX = 5;
/** Claimed alone this often, for longer and longer, and never a result: what kills the worker is the row. */
const CLAIMS_ALONE_MAX = 12;
/** What marking a batch takes at most, so that the mark still finds its lease. */
const MARK_MS = 1_000;
const RETRY_BASE_MS = 500;
const RETRY_CEILING_MS = 60_000;

/** The first half of a step: takes what is due under a lease. A crash after it costs the rest of the lease and nothing else. */
export async function claimBatch(
  { database, leaseMs, sendTimeoutMs }: BatchDependencies,
  input: ClaimBatchInput,
): Promise<ClaimedBatch> {
  const sendUntil = Date.now() + leaseMs - sendTimeoutMs - MARK_MS;
  const leaseToken = randomUUID();
  const { rows, next, hasSuspects } = await claimRows(database, {
    ...input,
    rowsPerAggregateMax: ROWS_PER_AGGREGATE_MAX,
    leaseToken,
    leaseMs,
  });
  const isWhole = next === null && rows.length < input.rowsMax && !isAnyAtItsLimit(rows);
  return { rows, leaseToken, sendUntil, next, isWhole, hasSuspects };
}

/**
 * The same of one row that seems to kill its worker. Claimed alone, it alone is to blame if its worker dies again: those
 * that were in flight with it by chance go out, and only the killer's claims go on growing until it is DEAD.
 */
export async function claimSuspectBatch(
  { database, leaseMs, sendTimeoutMs }: BatchDependencies,
  range: Omit<ClaimBatchInput, "rowsMax">,
): Promise<SentBatch | null> {
  const sendUntil = Date.now() + leaseMs - sendTimeoutMs - MARK_MS;
  const leaseToken = randomUUID();
  const row = await claimSuspect(database, { ...range, leaseToken, leaseMs });
  return row === null ? null : { rows: [row], leaseToken, sendUntil };
}

/** Whether an aggregate gave as many rows as it may, so that it may have more. */
function isAnyAtItsLimit(rows: readonly ClaimedRow[]): boolean {
  if (rows.length < ROWS_PER_AGGREGATE_MAX) return false;
  const queues = [...queuesByAggregate(rows).values()];
  return queues.some(({ length }) => length >= ROWS_PER_AGGREGATE_MAX);
}

/**
 * The second half: send → mark, no transaction open during the send. Run twice, or cut short anywhere, it publishes again
 * at most what was sent and not marked; a row is marked only under the lease that claimed it.
 */
export async function sendBatch(
  dependencies: BatchDependencies,
  batch: SentBatch,
): Promise<BatchResult> {
  const { database } = dependencies;
  const sending = new Sending(dependencies, batch);
  const isKiller = (row: ClaimedRow): boolean => claimsAlone(row) >= CLAIMS_ALONE_MAX;
  for (const killer of batch.rows.filter(isKiller)) await sending.markFailed(burial(killer));
  await sending.sendInWaves(queuesByAggregate(batch.rows.filter((row) => !isKiller(row))));
  const { published, marked, failures, lostLeases, outage, unsettled } = sending;
  if (unsettled.size > 0) await giveBack(database, [...unsettled], batch.leaseToken);
  return { published, marked, failures, lostLeases, outage };
}

/** One batch on its way out, and what became of it so far. */
class Sending {
  published = 0;
  lostLeases = 0;
  readonly marked: MarkedRow[] = [];
  readonly failures: BatchFailure[] = [];
  outage: string | null = null;
  /** Of the rows that waves have taken up: those without a result. */
  readonly unsettled = new Set<string>();
  readonly #dependencies: BatchDependencies;
  readonly #batch: SentBatch;

  constructor(dependencies: BatchDependencies, batch: SentBatch) {
    this.#dependencies = dependencies;
    this.#batch = batch;
  }

  /**
   * The n-th events of all aggregates go together: within one call nothing keeps an order, so a follower waits for the
   * receipt of its predecessor. A failed row takes its followers out of the batch and nobody else's.
   */
  async sendInWaves(queues: AggregateQueues): Promise<void> {
    for (const { messageId } of [...queues.values()].flat()) this.unsettled.add(messageId);
    while (queues.size > 0 && this.outage === null) {
      const wave = [...queues].map(([aggregate, [row]]) => ({ aggregate, row }));
      const rows = wave.flatMap(({ row }) => (row === undefined ? [] : [row]));
      const { accepted, unsent } = await this.#sendWave(rows);
      await this.#mark(accepted);
      this.outage = unsent.find(({ kind }) => kind !== "fault")?.error ?? null;
      for (const fault of unsent.filter(({ kind }) => kind === "fault")) {
        const failed = wave.find(({ row }) => row?.messageId === fault.messageId);
        if (failed?.row === undefined) continue;
        queues.delete(failed.aggregate);
        const { messageId, attempts } = failed.row;
        await this.markFailed({
          messageId,
          error: fault.error,
          retryInMs: retryAfter(attempts),
        });
      }
      advance(queues);
    }
  }

  /**
   * Where some got through and others met silence, each of those is tried once more alone: if it fails again and the
   * broker answers another question right after, the fault is its own. Throttling is never a message's fault.
   */
  async #sendWave(
    wave: readonly ClaimedRow[],
  ): Promise<{ accepted: AcceptedMessage[]; unsent: UnsentMessage[] }> {
    const { publisher } = this.#dependencies;
    const { sendUntil } = this.#batch;
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

  async #mark(accepted: readonly AcceptedMessage[]): Promise<void> {
    if (accepted.length === 0) return;
    const { database } = this.#dependencies;
    const marked = await markPublished(database, accepted, this.#batch.leaseToken);
    this.published += accepted.length;
    this.lostLeases += accepted.length - marked.length;
    this.marked.push(...marked);
    for (const { messageId } of accepted) this.unsettled.delete(messageId);
  }

  async markFailed(row: FailedRow): Promise<void> {
    const { messageId, error, retryInMs } = row;
    await markFailed(this.#dependencies.database, row, this.#batch.leaseToken);
    this.unsettled.delete(messageId);
    const claimed = this.#batch.rows.find((one) => one.messageId === messageId);
    this.failures.push({
      messageId,
      aggregateId: claimed?.aggregateId ?? "",
      error,
      isDead: retryInMs === null,
    });
  }
}

/** The rows of each aggregate in the order of their versions. */
type AggregateQueues = Map<string, ClaimedRow[]>;

function queuesByAggregate(rows: readonly ClaimedRow[]): AggregateQueues {
  const inOrder = rows.toSorted((left, right) =>
    Number(BigInt(left.aggregateVersion) - BigInt(right.aggregateVersion)),
  );
  return Map.groupBy(
    inOrder,
    ({ aggregateType, aggregateId }) => `${aggregateType}:${aggregateId}`,
  );
}

function burial({ messageId, claims }: ClaimedRow): FailedRow {
  const error = `claimed ${claims} times, the last ${CLAIMS_ALONE_MAX} of them alone, and never a result: it seems to end the worker that sends it`;
  return { messageId, error, retryInMs: null };
}

function advance(queues: AggregateQueues): void {
  for (const [aggregate, queue] of queues) {
    if (queue.length > 1) queues.set(aggregate, queue.slice(1));
    else queues.delete(aggregate);
  }
}

function retryAfter(attempts: number): number | null {
  if (attempts + 1 >= ATTEMPTS_MAX) return null;
  return Math.min(RETRY_BASE_MS * 4 ** attempts, RETRY_CEILING_MS);
}
