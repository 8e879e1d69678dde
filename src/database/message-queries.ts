import type { Tx } from "./database.ts";

/** An event as the outbox holds it, whatever its status. */
export interface StoredMessage {
  readonly messageId: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly aggregateVersion: string;
  readonly type: string;
  /** `payload::text`, never serialised again. */
  readonly payload: string;
  readonly headers: Readonly<Record<string, unknown>>;
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
