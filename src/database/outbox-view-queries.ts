import type { Database, Tx } from "./database.ts";

/** What people see of the outbox. Open rows come from the partial index, skipped ones by the record of who skipped them. */

export type OutboxRowStatus = "PENDING" | "PUBLISHED" | "DEAD" | "SKIPPED";

/** A row with everything that says why it is where it is. */
export interface OutboxRow {
  readonly messageId: string;
  readonly type: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly aggregateVersion: string;
  readonly status: OutboxRowStatus;
  readonly claims: number;
  readonly attempts: number;
  /** Null where it is due at once. */
  readonly nextAttemptAt: Date | null;
  /** Until when a relay has it in hand; null where none has. */
  readonly leaseUntil: Date | null;
  readonly brokerMessageId: string | null;
  readonly lastError: string | null;
  readonly createdAt: Date;
  readonly publishedAt: Date | null;
}

const ROW_COLUMNS = `o.id AS "messageId", o.type, o.aggregate_type AS "aggregateType", o.aggregate_id AS "aggregateId",
                     o.aggregate_version::text AS "aggregateVersion", o.status, o.claims, o.attempts,
                     nullif(o.next_attempt_at, '-infinity') AS "nextAttemptAt",
                     CASE WHEN o.lease_until > clock_timestamp() THEN o.lease_until END AS "leaseUntil",
                     o.broker_message_id AS "brokerMessageId", o.last_error AS "lastError", o.created_at AS "createdAt",
                     o.published_at AS "publishedAt"`;

const ROWS_OF_STATUS: Readonly<Record<OutboxRowStatus | "open", string>> = {
  open: `FROM remit.outbox o WHERE o.status IN ('PENDING', 'DEAD')`,
  PENDING: `FROM remit.outbox o WHERE o.status IN ('PENDING', 'DEAD') AND o.status = 'PENDING'`,
  DEAD: `FROM remit.outbox o WHERE o.status IN ('PENDING', 'DEAD') AND o.status = 'DEAD'`,
  PUBLISHED: `FROM remit.outbox o WHERE o.status = 'PUBLISHED'`,
  SKIPPED: `FROM remit.outbox o
             WHERE o.status = 'SKIPPED'
               AND o.id IN (SELECT a.message_id FROM remit.operator_actions a WHERE a.action = 'outbox.skip')`,
};

/** The oldest open rows, or the newest published or skipped ones. */
export async function listOutbox(
  tx: Tx,
  { status, type, limit }: { status: OutboxRowStatus | null; type: string | null; limit: number },
): Promise<OutboxRow[]> {
  const isDone = status === "PUBLISHED" || status === "SKIPPED";
  return await tx.run<OutboxRow & Record<string, unknown>>(
    {
      name: `list_outbox_${status ?? "open"}`,
      text: `SELECT ${ROW_COLUMNS}
               ${ROWS_OF_STATUS[status ?? "open"]}
                AND ($1::text IS NULL OR o.type = $1)
              ORDER BY o.created_at ${isDone ? "DESC" : ""}
              LIMIT $2`,
    },
    [type, limit],
  );
}

export interface OutboxStatus {
  readonly pending: number;
  readonly dead: number;
  readonly skipped: number;
  readonly oldestPendingAgeSeconds: number | null;
}

/** What waits and for how long; the age matters more than the number. */
export async function outboxStatus(database: Database): Promise<OutboxStatus> {
  const [row] = await database.run<{
    pending: string;
    dead: string;
    skipped: string;
    age: number | null;
  }>(
    {
      name: "outbox_status",
      text: `SELECT count(*) FILTER (WHERE status = 'PENDING') AS pending,
                    count(*) FILTER (WHERE status = 'DEAD') AS dead,
                    (SELECT count(DISTINCT o.id)
                       FROM remit.operator_actions a
                       JOIN remit.outbox o ON o.id = a.message_id AND o.status = 'SKIPPED'
                      WHERE a.action = 'outbox.skip') AS skipped,
                    extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE status = 'PENDING'))::float8 AS age
               FROM remit.outbox
              WHERE status IN ('PENDING', 'DEAD')`,
    },
    [],
  );
  return {
    pending: Number(row?.pending ?? 0),
    dead: Number(row?.dead ?? 0),
    skipped: Number(row?.skipped ?? 0),
    oldestPendingAgeSeconds: row?.age ?? null,
  };
}

export interface OutboxProgress {
  /** Whether the first open event of an aggregate is due for that long and in nobody's hands. */
  readonly isWaiting: boolean;
  /** Counts what happens to the outbox's rows: as long as it stays, nobody claims, marks or gives back. */
  readonly touches: string;
}

export async function readProgress(
  tx: Tx,
  { waitingMs }: { waitingMs: number },
): Promise<OutboxProgress> {
  const [row] = await tx.run<{ isWaiting: boolean; touches: string }>(
    {
      name: "outbox_progress",
      text: `SELECT EXISTS (SELECT FROM remit.outbox o
                             WHERE o.status IN ('PENDING', 'DEAD')
                               AND o.status = 'PENDING'
                               AND greatest(o.created_at, o.next_attempt_at) < clock_timestamp() - $1 * interval '1 millisecond'
                               AND (o.lease_until IS NULL OR o.lease_until < clock_timestamp())
                               AND NOT EXISTS (SELECT FROM remit.outbox e
                                                WHERE e.status IN ('PENDING', 'DEAD')
                                                  AND e.shard = o.shard AND e.aggregate_type = o.aggregate_type AND e.aggregate_id = o.aggregate_id
                                                  AND e.aggregate_version < o.aggregate_version)) AS "isWaiting",
                    (SELECT n_tup_upd::text FROM pg_stat_user_tables WHERE relid = 'remit.outbox'::regclass) AS touches`,
    },
    [waitingMs],
  );
  return row ?? { isWaiting: false, touches: "0" };
}
