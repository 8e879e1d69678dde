import { UUID_PATTERN } from "../domain/ids.ts";
import type { Tx } from "./database.ts";

/** Statements of retention: each takes a bounded batch and is a transaction by itself. */

export interface PurgeInput {
  readonly olderThanMs: number;
  readonly rowsMax: number;
  /** Where the batch before it ended, as PostgreSQL writes a time; null at the start. */
  readonly after: string | null;
}

export interface PurgedBatch {
  readonly purged: number;
  /** For the next batch; null where nothing is left that is old enough. */
  readonly after: string | null;
}

/** A row that the ledger still books from: its message may wait in a dead-letter queue for days. */
function isAwaited(row: string): string {
  return `CASE
               WHEN ${row}.status = 'SKIPPED' THEN false
               -- Of no payment or refund, whatever it says: a cast of it would end the purge for ever.
               WHEN ${row}.aggregate_id !~ '${UUID_PATTERN.source}' THEN false
               WHEN ${row}.aggregate_type = 'payment' AND ${row}.type = 'payment.created'
                 THEN EXISTS (SELECT FROM remit.payments p WHERE p.id = ${row}.aggregate_id::uuid AND p.status = 'pending')
               WHEN ${row}.aggregate_type = 'payment' AND ${row}.type = 'payment.captured'
                 THEN EXISTS (SELECT FROM remit.captures c WHERE c.payment_id = ${row}.aggregate_id::uuid AND c.id::text = ${row}.payload #>> '{data,captureId}' AND c.status = 'pending')
               WHEN ${row}.aggregate_type = 'refund' AND ${row}.type = 'refund.created'
                 THEN EXISTS (SELECT FROM remit.refunds r WHERE r.id = ${row}.aggregate_id::uuid AND r.status = 'pending')
               ELSE false END`;
}

/**
 * Deletes the oldest published and skipped rows whose earlier versions may go, too, and which no booking waits for; what is
 * PENDING or DEAD stays however old it is, and a trigger refuses it besides.
 */
export async function purgeOutbox(tx: Tx, input: PurgeInput): Promise<PurgedBatch> {
  return await purgeBatch(tx, input, {
    name: "purge_outbox",
    text: `
      WITH old AS MATERIALIZED (
        SELECT o.id, o.created_at
          FROM remit.outbox o
         WHERE o.created_at >= coalesce($3::timestamptz, '-infinity')
           AND o.created_at < clock_timestamp() - $1 * interval '1 millisecond'
           AND o.status IN ('PUBLISHED', 'SKIPPED')
           AND coalesce(o.published_at, o.created_at) < clock_timestamp() - $1 * interval '1 millisecond'
           AND NOT ${isAwaited("o")}
           AND NOT EXISTS (
             SELECT FROM remit.outbox e
              WHERE e.aggregate_type = o.aggregate_type AND e.aggregate_id = o.aggregate_id
                AND e.aggregate_version < o.aggregate_version
                AND (e.status NOT IN ('PUBLISHED', 'SKIPPED')
                     OR coalesce(e.published_at, e.created_at) >= clock_timestamp() - $1 * interval '1 millisecond'
                     OR ${isAwaited("e")}))
         ORDER BY o.created_at
         LIMIT $2
           FOR UPDATE SKIP LOCKED
      ), purged AS (
        DELETE FROM remit.outbox o
         USING old
         WHERE o.id = old.id
        RETURNING o.id
      )
      SELECT (SELECT count(*) FROM purged) AS purged, (SELECT max(created_at)::text FROM old) AS after`,
  });
}

/** Deletes the oldest decided rows. The ledger transaction, or the state of what was refused, stands in for them. */
export async function purgeInbox(tx: Tx, input: PurgeInput): Promise<PurgedBatch> {
  return await purgeBatch(tx, input, {
    name: "purge_inbox",
    text: `
      WITH old AS MATERIALIZED (
        SELECT i.consumer, i.message_id, i.received_at
          FROM remit.inbox i
         WHERE i.received_at >= coalesce($3::timestamptz, '-infinity')
           AND i.received_at < clock_timestamp() - $1 * interval '1 millisecond'
           AND i.processed_at IS NOT NULL
         ORDER BY i.received_at
         LIMIT $2
           FOR UPDATE SKIP LOCKED
      ), purged AS (
        DELETE FROM remit.inbox i
         USING old
         WHERE i.consumer = old.consumer AND i.message_id = old.message_id
        RETURNING i.message_id
      )
      SELECT (SELECT count(*) FROM purged) AS purged, (SELECT max(received_at)::text FROM old) AS after`,
  });
}

async function purgeBatch(
  tx: Tx,
  { olderThanMs, rowsMax, after }: PurgeInput,
  statement: { name: string; text: string },
): Promise<PurgedBatch> {
  const [row] = await tx.run<{ purged: string; after: string | null }>(statement, [
    olderThanMs,
    rowsMax,
    after,
  ]);
  return { purged: Number(row?.purged ?? 0), after: row?.after ?? null };
}
