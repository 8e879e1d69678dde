import { v7 as uuidv7 } from "uuid";
import type { Pool } from "pg";
import { eventValues } from "../../src/database/event-values.ts";
import { newEvent } from "../../src/domain/events.ts";
import type { OutboxEvent } from "../../src/domain/events.ts";
import type { OutgoingMessage } from "../../src/messaging/sns-publisher.ts";

/** The event that a payment starts with, about 600 bytes on the wire: each of an aggregate of its own. */
export function aCreatedEvent(): OutboxEvent {
  const paymentId = uuidv7();
  return newEvent({
    messageId: uuidv7(),
    type: "payment.created",
    aggregateVersion: 1,
    time: new Date(),
    traceparent: null,
    data: {
      paymentId,
      merchant: "default",
      idempotencyKey: `order-${paymentId}`,
      source: "alice",
      destination: "shop",
      amountMinor: "1250",
      currency: "EUR",
      capture: "automatic",
    },
  });
}

/** As the relay hands it to the publisher. */
export function toMessage(event: OutboxEvent): OutgoingMessage {
  return {
    messageId: event.messageId,
    aggregateType: event.aggregateType,
    aggregateId: event.aggregateId,
    aggregateVersion: String(event.aggregateVersion),
    type: event.type,
    payload: event.payload,
    headers: JSON.parse(event.headers) as Record<string, unknown>,
  };
}

/** Fills an outbox with pending events in one transaction. */
export async function fillOutbox(admin: Pool, events: readonly OutboxEvent[]): Promise<void> {
  const rows = events.map(eventValues);
  const column = (index: number): unknown[] => rows.map((row) => row[index]);
  await admin.query(
    `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
     SELECT *
       FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::jsonb[], $7::jsonb[])`,
    [0, 1, 2, 3, 4, 5, 6].map(column),
  );
}

/** Empties it past the rules that protect events, and leaves the statistics of an empty queue, as a quiet night would. */
export async function emptyOutbox(admin: Pool): Promise<void> {
  await asReplica(admin, ["TRUNCATE remit.outbox, remit.outbox_heads"]);
  await admin.query("VACUUM (ANALYZE) remit.outbox");
}

/** Without the triggers that number events and protect them. */
export async function asReplica(admin: Pool, statements: readonly string[]): Promise<void> {
  const client = await admin.connect();
  try {
    await client.query("SET session_replication_role = replica");
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.query("RESET session_replication_role");
    client.release();
  }
}
