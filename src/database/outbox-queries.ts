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
}

/** A walk visits this many aggregates at most: one probe each, about 12 µs, so 60 ms where all of them are blocked. */
const WALK_STEPS_MAX = 5_000;

/**
 * Claims due rows under a lease. A loose index scan jumps over `outbox_open_idx` to the first open row of each
 * aggregate; heads that are due and not leased are locked, followers are added as far as they are contiguous, so a row
 * is claimed only together with, or after, all earlier ones of its aggregate. SKIP LOCKED in materialised CTEs, and the
 * update by ctid: `WHERE id IN (SELECT … LIMIT)` updated 1,000 of 1,000 rows under another plan.
 */
export async function claimRows(tx: Tx, input: ClaimInput): Promise<Claim> {
  const found = await tx.run<
    Record<string, unknown> & { walkEnd: ClaimCursor | null } & (ClaimedRow | { messageId: null })
  >(
    {
      name: "claim_rows",
      text: `
      WITH RECURSIVE walk AS (
        (SELECT o.ctid AS tid, o.shard, o.aggregate_type, o.aggregate_id, 1 AS steps,
                o.status = 'PENDING' AND o.next_attempt_at <= now() AND (o.lease_until IS NULL OR o.lease_until <= now()) AS due
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
          SELECT o.ctid, o.shard, o.aggregate_type, o.aggregate_id, w.steps + 1,
                 o.status = 'PENDING' AND o.next_attempt_at <= now() AND (o.lease_until IS NULL OR o.lease_until <= now())
            FROM remit.outbox o
           WHERE o.status IN ('PENDING', 'DEAD')
             AND (o.shard, o.aggregate_type, o.aggregate_id) > (w.shard, w.aggregate_type, w.aggregate_id)
             AND o.shard <= $2::smallint
           ORDER BY o.shard, o.aggregate_type, o.aggregate_id, o.aggregate_version
           LIMIT 1) next
         WHERE w.steps < ${WALK_STEPS_MAX}
      ), heads AS MATERIALIZED (
        SELECT h.*
          FROM walk w
         CROSS JOIN LATERAL (
          SELECT o.ctid AS tid, o.shard, o.aggregate_type, o.aggregate_id, o.aggregate_version
            FROM remit.outbox o
           WHERE o.ctid = w.tid AND o.status = 'PENDING' AND o.next_attempt_at <= now()
             AND (o.lease_until IS NULL OR o.lease_until <= now())
             FOR NO KEY UPDATE SKIP LOCKED) h
         WHERE w.due
         LIMIT $6
      ), followers AS MATERIALIZED (
        SELECT f.tid, h.shard, h.aggregate_type, h.aggregate_id, h.aggregate_version AS head, f.aggregate_version
          FROM heads h
         CROSS JOIN LATERAL (
          SELECT o.ctid AS tid, o.aggregate_version
            FROM remit.outbox o
           WHERE o.status IN ('PENDING', 'DEAD') AND o.status = 'PENDING'
             AND o.shard = h.shard AND o.aggregate_type = h.aggregate_type AND o.aggregate_id = h.aggregate_id
             AND o.aggregate_version > h.aggregate_version AND o.aggregate_version < h.aggregate_version + $7
             AND o.next_attempt_at <= now() AND (o.lease_until IS NULL OR o.lease_until <= now())
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
           SET lease_token = $8, lease_until = now() + $9 * interval '1 millisecond', claims = claims + 1
          FROM batch b
         WHERE o.ctid = b.tid
        RETURNING o.id AS "messageId", o.shard, o.aggregate_type AS "aggregateType", o.aggregate_id AS "aggregateId",
                  o.aggregate_version AS "aggregateVersion", o.type, o.payload::text AS payload, o.headers, o.claims, o.attempts
      )
      SELECT c.*, walked.end AS "walkEnd"
        FROM (SELECT CASE WHEN (SELECT count(*) FROM heads) < $6
                          THEN (SELECT jsonb_build_object('shard', shard, 'aggregateType', aggregate_type, 'aggregateId', aggregate_id)
                                  FROM walk WHERE steps = ${WALK_STEPS_MAX}) END AS end) walked
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
  const walkEnd = found[0]?.walkEnd ?? null;
  return { rows, next: rows.length >= input.rowsMax ? lastOf(rows) : walkEnd };
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
                    attempts = attempts + 1, lease_token = NULL, lease_until = NULL, last_error = left($2, 1000)
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
