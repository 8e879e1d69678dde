import type { Tx } from "./database.ts";
import type { StoredMessage } from "./outbox-queries.ts";
import type { OutboxRowStatus } from "./outbox-view-queries.ts";

/** Statements of an operator's commands. */

/** A message under its lock; a relay that sends it waits with its mark. */
export interface LockedMessage extends StoredMessage {
  readonly status: OutboxRowStatus;
  /** A relay has it in hand, so it may be on its way this moment. */
  readonly isLeased: boolean;
  readonly claims: number;
  readonly attempts: number;
  readonly lastError: string | null;
}

/** Locks the messages that are there, in the order of their ids. */
export async function lockMessages(
  tx: Tx,
  messageIds: readonly string[],
): Promise<LockedMessage[]> {
  return await tx.run<LockedMessage & Record<string, unknown>>(
    {
      name: "lock_messages",
      text: `SELECT o.id AS "messageId", o.aggregate_type AS "aggregateType", o.aggregate_id AS "aggregateId",
                    o.aggregate_version::text AS "aggregateVersion", o.type, o.payload::text AS payload, o.headers, o.status,
                    coalesce(o.lease_until > clock_timestamp(), false) AS "isLeased", o.claims, o.attempts, o.last_error AS "lastError"
               FROM remit.outbox o
              WHERE o.id = ANY ($1::uuid[])
              ORDER BY o.id
                FOR NO KEY UPDATE`,
    },
    [messageIds],
  );
}

/** The ids of what is DEAD, the oldest first. */
export async function deadMessageIds(
  tx: Tx,
  { type, limit }: { type: string | null; limit: number },
): Promise<string[]> {
  const rows = await tx.run<{ id: string }>(
    {
      name: "dead_message_ids",
      text: `SELECT o.id
               FROM remit.outbox o
              WHERE o.status IN ('PENDING', 'DEAD') AND o.status = 'DEAD'
                AND ($1::text IS NULL OR o.type = $1)
              ORDER BY o.created_at
              LIMIT $2`,
    },
    [type, limit],
  );
  return rows.map(({ id }) => id);
}

/** Makes rows due at once, with every attempt before them: status, counts and time together, or they would be half retried. */
export async function makeDue(tx: Tx, messageIds: readonly string[]): Promise<void> {
  await tx.run(
    {
      name: "make_due",
      text: `UPDATE remit.outbox
                SET status = 'PENDING', claims = 0, attempts = 0, next_attempt_at = '-infinity', lease_token = NULL, lease_until = NULL
              WHERE id = ANY ($1::uuid[])`,
    },
    [messageIds],
  );
}

/** Takes a row out of the way of its followers, for ever. The record of who and why must be there. */
export async function markSkipped(tx: Tx, messageId: string): Promise<void> {
  await tx.run(
    {
      name: "mark_skipped",
      text: `UPDATE remit.outbox
                SET status = 'SKIPPED', lease_token = NULL, lease_until = NULL
              WHERE id = $1`,
    },
    [messageId],
  );
}

/** How often a person has sent this message again. */
export async function countRepublications(tx: Tx, messageId: string): Promise<number> {
  const [row] = await tx.run<{ count: string }>(
    {
      name: "count_republications",
      text: `SELECT count(*) AS count
               FROM remit.operator_actions
              WHERE message_id = $1
                AND action IN ('outbox.republish', 'dlq.redrive')`,
    },
    [messageId],
  );
  return Number(row?.count ?? 0);
}
