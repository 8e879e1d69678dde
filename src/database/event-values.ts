import type { OutboxEvent } from "../domain/events.ts";

/** An event's values in the order in which the statements list the columns of the outbox. */
export function eventValues(event: OutboxEvent): unknown[] {
  return [
    event.messageId,
    event.aggregateType,
    event.aggregateId,
    event.aggregateVersion,
    event.type,
    event.payload,
    event.headers,
  ];
}
