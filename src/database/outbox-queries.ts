import type { Tx } from "./database.ts";

/** Statements of the relay: claim, mark, give back, count a failure. Each is a transaction by itself, none spans a send. */

/** An event as the outbox holds it, whatever its status. */
export interface StoredMessage {
  readonly messageId: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly aggregateVersion: string;
  readonly type: string;
  /** `payload::text`, never serialised again: JSON.parse would round big numbers. */
  readonly payload: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

/** A claimed row, with what goes on the wire as the database stores it. */
export interface ClaimedRow extends StoredMessage {
  readonly shard: number;
  readonly claims: number;
  readonly attempts: number;
}

/** Where the last claim ended, so that blocked aggregates at the front aren't walked each time. */
export interface ClaimCursor {
  readonly shard: number;
  readonly aggregateType: string;
  readonly aggregateId: string;
}

export interface ClaimInput {
  readonly fromShard: number;
  readonly toShard: number;
  readonly cursor: ClaimCursor;
  readonly rowsMax: number;
  readonly rowsPerAggregateMax: number;
  readonly leaseToken: string;
  readonly leaseMs: number;
}

/** What was claimed, and where the next claim goes on: null where this one saw all of the range. */
export interface Claim {
  readonly rows: readonly ClaimedRow[];
  readonly next: ClaimCursor | null;
  /** Among what it saw are rows that are due and claimed alone. */
  readonly hasSuspects: boolean;
}

/** A walk visits this many aggregates at most: one probe each, about 12 µs, so 60 ms where all of them are blocked. */
const WALK_STEPS_MAX = 5_000;

/** A claim without a result may be a crash that had nothing to do with the row; so many in a row make it a suspect. */
const UNEXPLAINED_CLAIMS_MAX = 3;

const DUE =
  "o.status = 'PENDING' AND o.next_attempt_at <= now() AND (o.lease_until IS NULL OR o.lease_until <= now())";
/** What is given back isn't counted, and a failure is explained; what is left are claims that ended with their worker. */
const IS_SUSPECT = `o.claims - o.attempts >= ${UNEXPLAINED_CLAIMS_MAX}`;
const WALKED = `o.ctid AS tid, o.shard, o.aggregate_type, o.aggregate_id, ${DUE} AS due, ${IS_SUSPECT} AS suspect, o.claims - o.attempts AS unexplained`;

/** A loose index scan that jumps over `outbox_open_idx` to the first open row of each aggregate; evaluated as far as it is read. */
const WALK = `walk AS (
        (SELECT ${WALKED}, 1 AS steps
           FROM remit.outbox o
          WHERE o.status IN ('PENDING', 'DEAD')
            AND (o.shard, o.aggregate_type, o.aggregate_id) > ($3::smallint, $4::text, $5::text)
            AND o.shard BETWEEN $1::smallint AND $2::smallint
          ORDER BY o.shard, o.aggregate_type, o.aggregate_id, o.aggregate_version
          LIMIT 1)
        UNION ALL
        SELECT next.*
          FROM walk w
         CROSS JOIN LATERAL (
          SELECT ${WALKED}, w.steps + 1
            FROM remit.outbox o
           WHERE o.status IN ('PENDING', 'DEAD')
             AND (o.shard, o.aggregate_type, o.aggregate_id) > (w.shard, w.aggregate_type, w.aggregate_id)
             AND o.shard <= $2::smallint
           ORDER BY o.shard, o.aggregate_type, o.aggregate_id, o.aggregate_version
           LIMIT 1) next
         WHERE w.steps < ${WALK_STEPS_MAX}
      )`;

/** One row whose counter somebody has set to its end mustn't stop the claim of all others. */
const ONE_MORE_CLAIM = "least(o.claims, 2147483646) + 1";

const CLAIMED = `o.id AS "messageId", o.shard, o.aggregate_type AS "aggregateType", o.aggregate_id AS "aggregateId",
                  o.aggregate_version AS "aggregateVersion", o.type, o.payload::text AS payload, o.headers, o.claims, o.attempts`;

/**
 * Claims due rows under a lease: heads that are due and not leased are locked, followers are added as far as they are
 * contiguous, so a row is claimed only together with, or after, all earlier ones of its aggregate. SKIP LOCKED in
 * materialised CTEs, and the update by ctid: `WHERE id IN (SELECT … LIMIT)` updated 1,000 of 1,000 rows under another plan.
 */
export async function claimRows(tx: Tx, input: ClaimInput): Promise<Claim> {
  const found = await tx.run<
    Record<string, unknown> & { walkEnd: ClaimCursor | null; hasSuspects: boolean } & (
        ClaimedRow | { messageId: null }
      )
  >(
    {
      name: "claim_rows",
      text: `
      WITH RECURSIVE ${WALK}, heads AS MATERIALIZED (
        SELECT h.*, w.steps
          FROM walk w
         CROSS JOIN LATERAL (
          SELECT o.ctid AS tid, o.shard, o.aggregate_type, o.aggregate_id, o.aggregate_version
            FROM remit.outbox o
           WHERE o.ctid = w.tid AND ${DUE} AND NOT ${IS_SUSPECT}
             FOR NO KEY UPDATE SKIP LOCKED) h
         WHERE w.due AND NOT w.suspect
         LIMIT $6
      ), followers AS MATERIALIZED (
        SELECT f.tid, h.shard, h.aggregate_type, h.aggregate_id, h.aggregate_version AS head, f.aggregate_version
          FROM heads h
         CROSS JOIN LATERAL (
          SELECT o.ctid AS tid, o.aggregate_version
            FROM remit.outbox o
           WHERE o.status IN ('PENDING', 'DEAD') AND ${DUE} AND NOT ${IS_SUSPECT}
             AND o.shard = h.shard AND o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id
             AND o.aggregate_version > h.aggregate_version AND o.aggregate_version < h.aggregate_version + $7
           ORDER BY o.aggregate_version
           LIMIT $7
             FOR NO KEY UPDATE SKIP LOCKED) f
      ), batch AS MATERIALIZED (
        SELECT tid
          FROM (SELECT tid, shard, aggregate_type, aggregate_id, aggregate_version FROM heads
                UNION ALL
                SELECT tid, shard, aggregate_type, aggregate_id, aggregate_version
                  FROM (SELECT *, row_number() OVER (PARTITION BY shard, aggregate_type, aggregate_id ORDER BY aggregate_version) AS nth
                          FROM followers) numbered
                 WHERE aggregate_version = head + nth) contiguous
         ORDER BY shard, aggregate_type, aggregate_id, aggregate_version
         LIMIT $6
      ), claimed AS (
        UPDATE remit.outbox o
           SET lease_token = $8, lease_until = now() + $9 * interval '1 millisecond', claims = ${ONE_MORE_CLAIM}
          FROM batch b
         WHERE o.ctid = b.tid
        RETURNING ${CLAIMED}
      ), walked AS MATERIALIZED (
        SELECT count(*) < $6 AS is_complete, max(steps) AS steps FROM heads
      )
      SELECT c.*, ends.*
        FROM (SELECT (SELECT jsonb_build_object('shard', shard, 'aggregateType', aggregate_type, 'aggregateId', aggregate_id)
                        FROM walk
                       WHERE steps = ${WALK_STEPS_MAX} AND (SELECT is_complete FROM walked)) AS "walkEnd",
                     (SELECT coalesce(bool_or(due AND suspect), false)
                        FROM (SELECT due, suspect FROM walk LIMIT (SELECT CASE WHEN NOT is_complete THEN steps END FROM walked)) seen) AS "hasSuspects") ends
        LEFT JOIN claimed c ON true`,
    },
    [
      input.fromShard,
      input.toShard,
      input.cursor.shard,
      input.cursor.aggregateType,
      input.cursor.aggregateId,
      input.rowsMax,
      input.rowsPerAggregateMax,
      input.leaseToken,
      input.leaseMs,
    ],
  );
  const rows = found.filter((row) => row.messageId !== null);
  const { walkEnd = null, hasSuspects = false } = found[0] ?? {};
  return { rows, next: rows.length >= input.rowsMax ? lastOf(rows) : walkEnd, hasSuspects };
}

/** The longest lease of a suspect: so often does a row that kills its worker kill one. */
const SUSPECT_LEASE_MS_MAX = 30_000;
/** Enough for any lease to reach it. */
const DOUBLINGS_MAX = 10;

/**
 * Claims the least suspect row that is due, and nothing else: when its worker dies now, no other row is under suspicion
 * for it. Each time its lease is twice as long, so that the relay has time for all others in between.
 */
export async function claimSuspect(
  tx: Tx,
  input: Omit<ClaimInput, "rowsMax" | "rowsPerAggregateMax">,
): Promise<ClaimedRow | null> {
  const [row] = await tx.run<ClaimedRow & Record<string, unknown>>(
    {
      name: "claim_suspect",
      text: `
      WITH RECURSIVE ${WALK}, batch AS MATERIALIZED (
        SELECT h.tid
          FROM (SELECT tid FROM walk WHERE due AND suspect ORDER BY unexplained) w
         CROSS JOIN LATERAL (
          SELECT o.ctid AS tid
            FROM remit.outbox o
           WHERE o.ctid = w.tid AND ${DUE} AND ${IS_SUSPECT}
             FOR NO KEY UPDATE SKIP LOCKED) h
         LIMIT 1
      )
      UPDATE remit.outbox o
         SET lease_token = $6, claims = ${ONE_MORE_CLAIM},
             lease_until = now() + greatest($7, least($7 * 2.0 ^ least(o.claims - o.attempts - ${UNEXPLAINED_CLAIMS_MAX}, ${DOUBLINGS_MAX}), ${SUSPECT_LEASE_MS_MAX})) * interval '1 millisecond'
        FROM batch b
       WHERE o.ctid = b.tid
      RETURNING ${CLAIMED}`,
    },
    [
      input.fromShard,
      input.toShard,
      input.cursor.shard,
      input.cursor.aggregateType,
      input.cursor.aggregateId,
      input.leaseToken,
      input.leaseMs,
    ],
  );
  return row ?? null;
}

/** How often a claim of the row alone ended without a result, before this one. */
export function claimsAlone({ claims, attempts }: ClaimedRow): number {
  return Math.max(0, claims - 1 - attempts - UNEXPLAINED_CLAIMS_MAX);
}

function lastOf(rows: readonly ClaimedRow[]): ClaimCursor | null {
  return rows.reduce<ClaimCursor | null>(
    (last, row) => (last === null || isAfter(row, last) ? row : last),
    null,
  );
}

/** Compares as the index does: its text columns are COLLATE "C", and these ids are ASCII. */
function isAfter(left: ClaimCursor, right: ClaimCursor): boolean {
  if (left.shard !== right.shard) return left.shard > right.shard;
  if (left.aggregateType !== right.aggregateType) return left.aggregateType > right.aggregateType;
  return left.aggregateId > right.aggregateId;
}

export interface MarkedRow {
  readonly messageId: string;
  readonly aggregateId: string;
  /** From its insert to this mark, by PostgreSQL's clock alone. */
  readonly latencySeconds: number;
}

/**
 * Marks what the broker accepted, under the lease. Rows that it doesn't return were lost to another claim. No status in
 * the WHERE: it would imply the partial index, and its statistics lie after an empty queue.
 */
export async function markPublished(
  tx: Tx,
  receipts: readonly { messageId: string; brokerMessageId: string }[],
  leaseToken: string,
): Promise<MarkedRow[]> {
  return await tx.run<MarkedRow & Record<string, unknown>>(
    {
      name: "mark_published",
      text: `UPDATE remit.outbox o
                SET status = 'PUBLISHED', broker_message_id = receipt.broker_message_id, published_at = clock_timestamp(),
                    lease_token = NULL, lease_until = NULL, last_error = NULL
               FROM unnest($1::uuid[], $2::text[]) receipt (id, broker_message_id)
              WHERE o.id = receipt.id
                AND o.lease_token = $3
          RETURNING o.id AS "messageId", o.aggregate_id AS "aggregateId", extract(epoch FROM o.published_at - o.created_at)::float8 AS "latencySeconds"`,
    },
    [
      receipts.map(({ messageId }) => messageId),
      receipts.map(({ brokerMessageId }) => brokerMessageId),
      leaseToken,
    ],
  );
}

/** Gives rows back that were not sent: the claim doesn't count, so an outage burns nothing. */
export async function giveBack(
  tx: Tx,
  messageIds: readonly string[],
  leaseToken: string,
): Promise<void> {
  await tx.run(
    {
      name: "give_back",
      text: `UPDATE remit.outbox o
                SET lease_token = NULL, lease_until = NULL, claims = claims - 1
              WHERE o.id = ANY ($1::uuid[])
                AND o.lease_token = $2`,
    },
    [messageIds, leaseToken],
  );
}

export interface FailedRow {
  readonly messageId: string;
  readonly error: string;
  /** Null: the row is DEAD, blocks its aggregate and waits for a person. */
  readonly retryInMs: number | null;
}

/** Counts an attempt that failed by the row's own fault; its followers wait by themselves. */
export async function markFailed(tx: Tx, row: FailedRow, leaseToken: string): Promise<void> {
  await tx.run(
    {
      name: "mark_failed",
      text: `UPDATE remit.outbox o
                SET status = CASE WHEN $3::int IS NULL THEN 'DEAD' ELSE 'PENDING' END,
                    next_attempt_at = CASE WHEN $3::int IS NULL THEN o.next_attempt_at
                                           ELSE clock_timestamp() + $3::int * interval '1 millisecond' END,
                    attempts = least(o.attempts, 2147483646) + 1, lease_token = NULL, lease_until = NULL, last_error = left($2, 1000)
              WHERE o.id = $1
                AND o.lease_token = $4`,
    },
    [row.messageId, row.error, row.retryInMs, leaseToken],
  );
}

/** Reads one event by its id, to send it once more. */
export async function getMessage(tx: Tx, messageId: string): Promise<StoredMessage | null> {
  const rows = await tx.run<StoredMessage & Record<string, unknown>>(
    {
      name: "get_message",
      text: `SELECT o.id AS "messageId", o.aggregate_type AS "aggregateType", o.aggregate_id AS "aggregateId",
                    o.aggregate_version::text AS "aggregateVersion", o.type, o.payload::text AS payload, o.headers
               FROM remit.outbox o
              WHERE o.id = $1`,
    },
    [messageId],
  );
  return rows[0] ?? null;
}

/** The start of a shard range; not below it, or the walk pays for other ranges. */
export function cursorAtStart(fromShard: number): ClaimCursor {
  return { shard: fromShard, aggregateType: "", aggregateId: "" };
}
