import type { Tx } from "./database.ts";

/** What people see of the inbox. */

export interface InboxRow {
  readonly messageId: string;
  readonly type: string;
  readonly paymentId: string | null;
  readonly outcome: string | null;
  readonly error: string | null;
  readonly deliveries: number;
  readonly receivedAt: Date;
  readonly processedAt: Date | null;
}

/** The newest first. */
export async function listInbox(
  tx: Tx,
  { onlyErrors, limit }: { onlyErrors: boolean; limit: number },
): Promise<InboxRow[]> {
  return await tx.run<InboxRow & Record<string, unknown>>(
    {
      name: onlyErrors ? "list_inbox_errors" : "list_inbox",
      text: `SELECT i.message_id AS "messageId", i.type, i.payload #>> '{data,paymentId}' AS "paymentId", i.outcome, i.error,
                    i.deliveries, i.received_at AS "receivedAt", i.processed_at AS "processedAt"
               FROM remit.inbox i
              WHERE i.consumer = 'ledger'
                ${onlyErrors ? "AND i.error IS NOT NULL" : ""}
              ORDER BY i.received_at DESC
              LIMIT $1`,
    },
    [limit],
  );
}

/** What Remit knows of a message that lies in a dead-letter queue. */
export interface KnownMessage {
  /** Null where no event has this id, or it was purged. */
  readonly outboxStatus: string | null;
  /** Null where the ledger has not decided. */
  readonly outcome: string | null;
  readonly error: string | null;
}

export async function knownMessage(tx: Tx, messageId: string): Promise<KnownMessage> {
  const [row] = await tx.run<KnownMessage & Record<string, unknown>>(
    {
      name: "known_message",
      text: `SELECT (SELECT o.status FROM remit.outbox o WHERE o.id = $1) AS "outboxStatus",
                    coalesce(i.outcome, CASE WHEN EXISTS (SELECT FROM remit.ledger_transactions t WHERE t.message_id = $1) THEN 'booked' END) AS outcome,
                    i.error
               FROM (SELECT) one
               LEFT JOIN remit.inbox i ON i.consumer = 'ledger' AND i.message_id = $1`,
    },
    [messageId],
  );
  return row ?? { outboxStatus: null, outcome: null, error: null };
}
