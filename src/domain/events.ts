import { z } from "zod";
import { TRACEPARENT_PATTERN, traceparentOf } from "./trace-context.ts";

const minor = z.string().regex(/^[1-9][0-9]{0,17}$/);
const minorOrZero = z.string().regex(/^(0|[1-9][0-9]{0,17})$/);

const paymentData = z.object({
  paymentId: z.uuid(),
  merchant: z.string(),
  idempotencyKey: z.string(),
  source: z.string(),
  destination: z.string(),
  amountMinor: minor,
  currency: z.string().regex(/^[A-Z]{3}$/),
  capture: z.enum(["automatic", "manual"]),
});

const captureData = paymentData.extend({
  captureId: z.uuid(),
  /** Of this capture alone; `capturedMinor` counts all that are booked or on their way. */
  captureAmountMinor: minor,
  capturedMinor: minorOrZero,
});

const refundData = z.object({
  refundId: z.uuid(),
  paymentId: z.uuid(),
  merchant: z.string(),
  idempotencyKey: z.string(),
  /** The account that gives the money back: the payment's destination. */
  source: z.string(),
  destination: z.string(),
  amountMinor: minor,
  currency: z.string().regex(/^[A-Z]{3}$/),
});

/**
 * The events that other services may build on: a versioned contract, not a dump of a row. Amounts are decimal strings
 * in the currency's minor unit. docs/events holds the JSON Schema of each; a test keeps them equal.
 */
const dataSchemas = {
  "payment.created": paymentData,
  "payment.authorized": paymentData.extend({ expiresAt: z.iso.datetime() }),
  "payment.captured": captureData.extend({ final: z.boolean(), releasedMinor: minorOrZero }),
  "payment.capture_failed": captureData.extend({ failureCode: z.string() }),
  "payment.released": paymentData.extend({ capturedMinor: minor, releasedMinor: minor }),
  "payment.settled": paymentData.extend({ transactionId: z.uuid() }),
  "payment.failed": paymentData.extend({ failureCode: z.string() }),
  "payment.cancelled": paymentData,
  "payment.voided": paymentData,
  "payment.expired": paymentData,
  "refund.created": refundData,
  "refund.settled": refundData.extend({ transactionId: z.uuid() }),
  "refund.failed": refundData.extend({ failureCode: z.string() }),
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
    /** CloudEvents' Distributed Tracing extension: of the request that led to the event, where that had one. */
    traceparent: z.string().regex(TRACEPARENT_PATTERN).optional(),
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

export interface NewEvent<Type extends EventType> {
  readonly messageId: string;
  readonly type: Type;
  readonly aggregateVersion: number;
  readonly time: Date;
  /** Of the request that led to it; left out where that had none, where it isn't valid, or nobody asked. */
  readonly traceparent: string | null | undefined;
  readonly data: EventData<Type>;
}

/** Wraps what happened to a payment or refund into its message; the same input gives the same bytes. */
export function newEvent<Type extends EventType>({
  messageId,
  type,
  aggregateVersion,
  time,
  traceparent,
  data,
}: NewEvent<Type>): OutboxEvent {
  const dataschema = dataSchemaOf(type);
  const aggregate = aggregateOf(data);
  const valid = traceparentOf(traceparent);
  const trace = valid === null ? {} : { traceparent: valid };
  return {
    messageId,
    ...aggregate,
    aggregateVersion,
    type,
    payload: JSON.stringify({
      specversion: "1.0",
      id: messageId,
      source: "/remit",
      type,
      subject: aggregate.aggregateId,
      time: time.toISOString(),
      datacontenttype: "application/json",
      dataschema,
      ...trace,
      data,
    }),
    headers: JSON.stringify({
      ...("capture" in data ? { capture: data.capture } : {}),
      dataschema,
      ...trace,
    }),
  };
}

function aggregateOf(
  data: EventData<EventType>,
): Pick<OutboxEvent, "aggregateType" | "aggregateId"> {
  return "refundId" in data
    ? { aggregateType: "refund", aggregateId: data.refundId }
    : { aggregateType: "payment", aggregateId: data.paymentId };
}

function dataSchemaOf(type: EventType): string {
  return `urn:remit:event:${type}:${EVENT_VERSION}`;
}
