import type { AccountState, PaymentState } from "../domain/decisions.ts";
import type { PartStatus, PaymentStatus } from "../domain/payment.ts";
import { UUID_PATTERN } from "../domain/ids.ts";
import type { Tx } from "./database.ts";
import { PAYMENT_JSON, toPaymentState } from "./payment-rows.ts";
import type { PaymentRow } from "./payment-rows.ts";
import { ACCOUNT_JSON, toAccountState } from "./record-queries.ts";

/** Statements of the booking transaction. Order of locks: inbox row, payment, capture or refund, outbox head, accounts by (rank, id). */

const CONSUMER = "ledger";
/** Of an outbox row `o`: ids that can be read as such, in the one spelling that the rules of the tables know. */
const NAMES_ITS_PAYMENT = `o.aggregate_id ~ '${UUID_PATTERN.source}'
           AND (o.type <> 'payment.captured' OR o.payload #>> '{data,captureId}' ~ '${UUID_PATTERN.source}')`;

export interface Message {
  readonly messageId: string;
  readonly type: string;
  readonly payload: string;
}

export type LedgerMessageType = "payment.created" | "payment.captured" | "refund.created";

/** A capture or refund under its lock. */
export interface PartState {
  readonly id: string;
  readonly idempotencyKey: string;
  readonly amount: bigint;
  readonly status: PartStatus;
}

export interface ReceivedMessage {
  readonly isNew: boolean;
  readonly now: Date;
  /** What the message is about; null where no event of ours has its id. */
  readonly type: LedgerMessageType | null;
  /** What the event carries of the request that led to it. */
  readonly traceparent: string | null;
  readonly payment: PaymentState | null;
  /** Of a payment.captured or refund.created. */
  readonly part: PartState | null;
  /** The payment's accounts. */
  readonly source: AccountState | null;
  readonly destination: AccountState | null;
}

type AccountRow = Parameters<typeof toAccountState>[0];

/**
 * Claims the message and, if it is new, locks its payment and its capture or refund. Which ones these are, the outbox row
 * of this id says, and never the message, which anybody could have put into the queue: what is still to be booked keeps
 * its row, so a message without one was decided before or isn't ours. The inbox row is written as booked; `refuseMessage`
 * changes that in the same transaction. A message whose inbox row was purged is known by its ledger transaction.
 */
export async function receiveMessage(tx: Tx, message: Message): Promise<ReceivedMessage> {
  const [row] = await tx.run<{
    is_new: boolean;
    now: Date;
    type: LedgerMessageType | null;
    traceparent: string | null;
    payment: PaymentRow | null;
    part: { id: string; idempotencyKey: string; amount: string; status: PartStatus } | null;
    source: AccountRow | null;
    destination: AccountRow | null;
  }>(
    {
      name: "receive_message",
      text: `
      WITH message AS MATERIALIZED (
        SELECT o.type, o.aggregate_type, o.aggregate_id, o.payload, o.headers FROM remit.outbox o WHERE o.id = $1
      ), received AS MATERIALIZED (
        INSERT INTO remit.inbox (consumer, message_id, type, payload, processed_at, outcome)
        SELECT '${CONSUMER}', $1, coalesce((SELECT type FROM message), $2), $3, clock_timestamp(), 'booked'
         WHERE NOT EXISTS (SELECT FROM remit.ledger_transactions WHERE message_id = $1)
            ON CONFLICT (consumer, message_id) DO NOTHING
        RETURNING message_id
      ), event AS MATERIALIZED (
        SELECT o.type, o.headers ->> 'traceparent' AS traceparent, CASE o.aggregate_type WHEN 'payment' THEN o.aggregate_id::uuid END AS payment_id,
               CASE o.type WHEN 'payment.captured' THEN (o.payload #>> '{data,captureId}')::uuid END AS capture_id,
               CASE o.aggregate_type WHEN 'refund' THEN o.aggregate_id::uuid END AS refund_id
          FROM message o
         WHERE (o.aggregate_type, o.type) IN (('payment', 'payment.created'), ('payment', 'payment.captured'), ('refund', 'refund.created'))
           AND ${NAMES_ITS_PAYMENT}
      ), payment AS MATERIALIZED (
        SELECT p.*
          FROM received
          JOIN remit.payments p ON p.id = (SELECT coalesce(e.payment_id, r.payment_id) FROM event e LEFT JOIN remit.refunds r ON r.id = e.refund_id)
           FOR NO KEY UPDATE OF p
      ), capture AS MATERIALIZED (
        SELECT c.id, c.amount, c.status, c.idempotency_key
          FROM payment p
          JOIN remit.captures c ON c.payment_id = p.id AND c.id = (SELECT capture_id FROM event)
           FOR NO KEY UPDATE OF c
      ), refund AS MATERIALIZED (
        SELECT r.id, r.amount, r.status, r.idempotency_key
          FROM payment p
          JOIN remit.refunds r ON r.payment_id = p.id AND r.id = (SELECT refund_id FROM event)
           FOR NO KEY UPDATE OF r
      )
      SELECT EXISTS (SELECT FROM received) AS is_new,
             clock_timestamp() AS now,
             (SELECT type FROM event) AS type,
             (SELECT traceparent FROM event) AS traceparent,
             (SELECT ${PAYMENT_JSON} FROM payment p) AS payment,
             (SELECT jsonb_build_object('id', part.id, 'idempotencyKey', part.idempotency_key, 'amount', part.amount::text, 'status', part.status)
                FROM (SELECT * FROM capture UNION ALL SELECT * FROM refund) part) AS part,
             (SELECT ${ACCOUNT_JSON} FROM payment p JOIN remit.accounts a ON a.id = p.source) AS source,
             (SELECT ${ACCOUNT_JSON} FROM payment p JOIN remit.accounts a ON a.id = p.destination) AS destination`,
    },
    [message.messageId, message.type, message.payload],
  );
  if (row === undefined) throw new Error("receive_message returned no row");
  return {
    isNew: row.is_new,
    now: row.now,
    type: row.type,
    traceparent: row.traceparent,
    payment: row.payment === null ? null : toPaymentState(row.payment),
    part: row.part === null ? null : { ...row.part, amount: BigInt(row.part.amount) },
    source: row.source === null ? null : toAccountState(row.source),
    destination: row.destination === null ? null : toAccountState(row.destination),
  };
}

/** One more delivery of a message that is decided already; what isn't in the inbox any more isn't counted. */
export async function countDelivery(tx: Tx, messageId: string): Promise<void> {
  await tx.run(
    {
      name: "count_delivery",
      text: `UPDATE remit.inbox
                SET deliveries = deliveries + 1
              WHERE consumer = '${CONSUMER}'
                AND message_id = $1`,
    },
    [messageId],
  );
}

export interface StandingBooking {
  readonly outcome: "booked" | "refused";
  readonly error: string | null;
  readonly transactionId: string | null;
  readonly payment: (Standing<PaymentStatus> & { readonly paymentId: string }) | null;
  readonly captureId: string | null;
  readonly refund: Standing<PartStatus> | null;
  /** Null where its outbox row was purged, or never was. */
  readonly event: { readonly type: string; readonly traceparent: string | null } | null;
}

interface Standing<Status> {
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly status: Status;
  readonly failureCode: string | null;
}

/** What was decided about a message before, from the inbox or, after its purge, from the ledger. */
export async function readBooking(tx: Tx, messageId: string): Promise<StandingBooking> {
  const [row] = await tx.run<{
    outcome: "booked" | "refused" | null;
    error: string | null;
    transaction_id: string | null;
    capture_id: string | null;
    payment: (Standing<PaymentStatus> & { paymentId: string }) | null;
    refund: Standing<PartStatus> | null;
    event: { type: string; traceparent: string | null } | null;
  }>(
    {
      name: "read_booking",
      text: `SELECT i.outcome, i.error, t.id AS transaction_id,
                    coalesce(t.capture_id, CASE o.type WHEN 'payment.captured' THEN (o.payload #>> '{data,captureId}')::uuid END) AS capture_id,
                    CASE WHEN p.id IS NOT NULL THEN jsonb_build_object('paymentId', p.id, 'merchant', p.merchant, 'idempotencyKey', p.idempotency_key,
                                                                       'status', p.status, 'failureCode', p.failure_code) END AS payment,
                    CASE WHEN r.id IS NOT NULL THEN jsonb_build_object('merchant', p.merchant, 'idempotencyKey', r.idempotency_key,
                                                                       'status', r.status, 'failureCode', r.failure_code) END AS refund,
                    CASE WHEN o.id IS NOT NULL THEN jsonb_build_object('type', o.type, 'traceparent', o.headers ->> 'traceparent') END AS event
               FROM (SELECT $1::uuid AS message_id) m
               LEFT JOIN remit.inbox i ON i.consumer = '${CONSUMER}' AND i.message_id = m.message_id
               LEFT JOIN remit.ledger_transactions t ON t.message_id = m.message_id
               LEFT JOIN remit.outbox o ON o.id = m.message_id AND o.aggregate_type IN ('payment', 'refund') AND ${NAMES_ITS_PAYMENT}
               LEFT JOIN remit.refunds r
                      ON r.id = coalesce(t.refund_id, CASE o.aggregate_type WHEN 'refund' THEN o.aggregate_id::uuid END)
               LEFT JOIN remit.payments p
                      ON p.id = coalesce(t.payment_id, r.payment_id, CASE o.aggregate_type WHEN 'payment' THEN o.aggregate_id::uuid END)
              LIMIT 1`,
    },
    [messageId],
  );
  return {
    outcome: row?.outcome ?? "booked",
    error: row?.error ?? null,
    transactionId: row?.transaction_id ?? null,
    payment: row?.payment ?? null,
    captureId: row?.capture_id ?? null,
    refund: row?.refund ?? null,
    event: row?.event ?? null,
  };
}

/** Turns this transaction's prepared booking into a refusal. */
export async function refuseMessage(tx: Tx, messageId: string, error: string): Promise<void> {
  await tx.run(
    {
      name: "refuse_message",
      text: `UPDATE remit.inbox
                SET outcome = 'refused', error = $2
              WHERE consumer = '${CONSUMER}'
                AND message_id = $1`,
    },
    [messageId, error],
  );
}

/** Locks a payment for a transition; null where there is none. */
export async function lockPayment(
  tx: Tx,
  paymentId: string,
): Promise<{ payment: PaymentState; failureCode: string | null; now: Date } | null> {
  const [row] = await tx.run<{ payment: PaymentRow; failure_code: string | null; now: Date }>(
    {
      name: "lock_payment",
      text: `SELECT ${PAYMENT_JSON} AS payment, p.failure_code, clock_timestamp() AS now
               FROM remit.payments p
              WHERE p.id = $1
                FOR NO KEY UPDATE`,
    },
    [paymentId],
  );
  return row === undefined
    ? null
    : { payment: toPaymentState(row.payment), failureCode: row.failure_code, now: row.now };
}
