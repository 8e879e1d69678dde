import type { Tx } from "./database.ts";

/** Statements by which the demo looks closely, and by which it dies at an exact point; no product code uses them. */

export interface OutboxRow {
  readonly aggregateId: string;
  readonly version: number;
  readonly status: string;
  readonly attempts: number;
  readonly publishedAt: Date | null;
}

/** The outbox rows of these payments, in the order of each one's events. */
export async function outboxRowsOf(tx: Tx, paymentIds: readonly string[]): Promise<OutboxRow[]> {
  const rows = await tx.run<Omit<OutboxRow, "version"> & { version: string }>(
    {
      name: "demo_outbox_rows",
      text: `SELECT aggregate_id AS "aggregateId", aggregate_version AS version, status, attempts, published_at AS "publishedAt"
               FROM remit.outbox
              WHERE aggregate_type = 'payment'
                AND aggregate_id = ANY ($1::text[])
              ORDER BY aggregate_id, aggregate_version`,
    },
    [paymentIds],
  );
  return rows.map((row) => ({ ...row, version: Number(row.version) }));
}

/** The first event of a payment; `leased` while a relay has it in its hands. */
export async function firstEvent(
  tx: Tx,
  paymentId: string,
): Promise<{ messageId: string; leased: boolean } | null> {
  const [row] = await tx.run<{ messageId: string; leased: boolean }>(
    {
      name: "demo_first_event",
      text: `SELECT id AS "messageId", lease_token IS NOT NULL AS leased
               FROM remit.outbox
              WHERE aggregate_type = 'payment'
                AND aggregate_id = $1
                AND aggregate_version = 1`,
    },
    [paymentId],
  );
  return row ?? null;
}

export interface LockedEvent {
  readonly status: string;
  readonly claims: number;
  readonly brokerMessageId: string | null;
  readonly leaseUntil: Date | null;
}

/** Locks an outbox row to the end of the transaction: a mark waits for it, a claim passes it by, a booking only reads. */
export async function lockEvent(tx: Tx, messageId: string): Promise<LockedEvent | null> {
  const [row] = await tx.run<LockedEvent & Record<string, unknown>>(
    {
      name: "demo_lock_event",
      text: `SELECT status, claims, broker_message_id AS "brokerMessageId", lease_until AS "leaseUntil"
               FROM remit.outbox
              WHERE id = $1
                FOR UPDATE`,
    },
    [messageId],
  );
  return row ?? null;
}

/** How many sessions wait for a lock of this one. */
export async function countWaiters(tx: Tx): Promise<number> {
  const [row] = await tx.run<{ count: string }>(
    {
      name: "demo_count_waiters",
      text: `SELECT count(*) AS count
               FROM pg_stat_activity a
              WHERE a.datname = current_database()
                AND pg_backend_pid() = ANY (pg_blocking_pids(a.pid))`,
    },
    [],
  );
  return Number(row?.count ?? 0);
}

/**
 * Ends the sessions that wait for this one, and answers how many they were. PostgreSQL doesn't look whether its client
 * is still there while a statement waits: the mark of a killed worker would be carried out when the lock goes.
 */
export async function endWaiters(tx: Tx): Promise<number> {
  const rows = await tx.run<{ ended: boolean }>(
    {
      name: "demo_end_waiters",
      text: `SELECT pg_terminate_backend(a.pid, ${END_WAITER_MS}) AS ended
               FROM pg_stat_activity a
              WHERE a.datname = current_database()
                AND pg_backend_pid() = ANY (pg_blocking_pids(a.pid))`,
    },
    [],
  );
  return rows.filter(({ ended }) => ended).length;
}

const END_WAITER_MS = 3_000;

/** Whether a message is booked. */
export async function isBooked(tx: Tx, messageId: string): Promise<boolean> {
  const rows = await tx.run(
    {
      name: "demo_is_booked",
      text: `SELECT id
               FROM remit.ledger_transactions
              WHERE message_id = $1`,
    },
    [messageId],
  );
  return rows.length > 0;
}
