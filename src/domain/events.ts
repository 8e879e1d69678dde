import { z } from "zod";

/**
 * The events that other services may build on: a versioned contract, not a dump of a row. Amounts are decimal strings
 * in the currency's minor unit. docs/events holds the JSON Schema of each; a test keeps them equal.
 */
const paymentData = z.object({
  paymentId: z.uuid(),
  merchant: z.string(),
  idempotencyKey: z.string(),
  source: z.string(),
  destination: z.string(),
  amountMinor: z.string().regex(/^[1-9][0-9]{0,17}$/),
  currency: z.string().regex(/^[A-Z]{3}$/),
  capture: z.enum(["automatic", "manual"]),
});

const dataSchemas = {
  "payment.created": paymentData,
  "payment.settled": paymentData.extend({ transactionId: z.uuid() }),
  "payment.failed": paymentData.extend({ failureCode: z.string() }),
  "payment.cancelled": paymentData,
} as const;

export type EventType = keyof typeof dataSchemas;
export type EventData<Type extends EventType> = z.infer<(typeof dataSchemas)[Type]>;

/** Raised when a field changes its meaning or goes away; a new optional field does not. */
const EVENT_VERSION = 1;

/** The CloudEvents 1.0 document of one event type. */
export function eventSchema(type: EventType): z.ZodType {
  return z.object({
    specversion: z.literal("1.0"),
    id: z.uuid(),
    source: z.literal("/remit"),
    type: z.literal(type),
    subject: z.uuid(),
    time: z.iso.datetime(),
    datacontenttype: z.literal("application/json"),
    dataschema: z.literal(dataSchemaOf(type)),
    data: dataSchemas[type],
  });
}

export const EVENT_TYPES = Object.keys(dataSchemas) as EventType[];

/** One row of the outbox before the database has numbered it. `payload` and `headers` are JSON texts. */
export interface OutboxEvent {
  readonly messageId: string;
  readonly aggregateType: "payment" | "refund";
  readonly aggregateId: string;
  /** Counts from 1 without gaps; the database refuses any other number. */
  readonly aggregateVersion: number;
  readonly type: EventType;
  readonly payload: string;
  readonly headers: string;
}

export interface NewPaymentEvent<Type extends EventType> {
  readonly messageId: string;
  readonly type: Type;
  readonly aggregateVersion: number;
  readonly time: Date;
  readonly data: EventData<Type>;
}

/** Wraps what happened to a payment into its message; the same input gives the same bytes. */
export function paymentEvent<Type extends EventType>({
  messageId,
  type,
  aggregateVersion,
  time,
  data,
}: NewPaymentEvent<Type>): OutboxEvent {
  const dataschema = dataSchemaOf(type);
  return {
    messageId,
    aggregateType: "payment",
    aggregateId: data.paymentId,
    aggregateVersion,
    type,
    payload: JSON.stringify({
      specversion: "1.0",
      id: messageId,
      source: "/remit",
      type,
      subject: data.paymentId,
      time: time.toISOString(),
      datacontenttype: "application/json",
      dataschema,
      data,
    }),
    headers: JSON.stringify({ capture: data.capture, dataschema }),
  };
}

function dataSchemaOf(type: EventType): string {
  return `urn:remit:event:${type}:${EVENT_VERSION}`;
}

/** Reads the event that the ledger books. Unknown fields pass: a newer writer may add them. */
export const paymentCreatedMessage = z.object({
  id: z.uuid(),
  type: z.literal("payment.created"),
  data: dataSchemas["payment.created"],
});
