import type { AccountState, PaymentState } from "../domain/decisions.ts";
import type { OutboxEvent } from "../domain/events.ts";
import type { CaptureMode, PaymentStatus } from "../domain/payment.ts";
import type { Tx } from "./database.ts";
import { ACCOUNT_JSON, toAccountState } from "./record-queries.ts";

/** Statements of the booking transaction. Order of locks: inbox row, payment, outbox head, accounts by (rank, id). */

const CONSUMER = "ledger";

export interface Message {
  readonly messageId: string;
  readonly type: string;
  readonly payload: string;
}

export interface ReceivedMessage {
  readonly isNew: boolean;
  readonly now: Date;
  readonly payment: PaymentState | null;
  readonly source: AccountState | null;
  readonly destination: AccountState | null;
}

interface PaymentRow {
  paymentId: string;
  merchant: string;
  idempotencyKey: string;
  source: string;
  destination: string;
  amount: string;
  currency: string;
  capture: CaptureMode;
  status: PaymentStatus;
  version: string;
}

type AccountRow = Parameters<typeof toAccountState>[0];

const PAYMENT_JSON = `jsonb_build_object(
          'paymentId', p.id, 'merchant', p.merchant, 'idempotencyKey', p.idempotency_key,
          'source', p.source, 'destination', p.destination, 'amount', p.amount::text, 'currency', p.currency,
          'capture', p.capture, 'status', p.status, 'version', p.version::text)`;

/**
 * Claims the message and, if it is new, locks its payment. Which payment that is, the outbox row of this id says, and
 * not the message, which anybody could have put into the queue; only after that row was purged the message is believed,
 * if its payment's events were purged. The inbox row is written as booked; `refuseMessage` changes that in the same
 * transaction. A message whose inbox row was purged is known by its ledger transaction.
 */
export async function receiveMessage(
  tx: Tx,
  message: Message,
  claimedPaymentId: string | null,
): Promise<ReceivedMessage> {
  const [row] = await tx.run<{
    is_new: boolean;
    now: Date;
    payment: PaymentRow | null;
    source: AccountRow | null;
    destination: AccountRow | null;
  }>(
    {
      name: "receive_message",
      text: `
      WITH received AS MATERIALIZED (
        INSERT INTO remit.inbox (consumer, message_id, type, payload, processed_at, outcome)
        SELECT '${CONSUMER}', $1, $2, $3, clock_timestamp(), 'booked'
         WHERE NOT EXISTS (SELECT FROM remit.ledger_transactions WHERE message_id = $1)
            ON CONFLICT (consumer, message_id) DO NOTHING
        RETURNING message_id
      ), event AS MATERIALIZED (
        SELECT o.aggregate_id::uuid AS payment_id
          FROM remit.outbox o
         WHERE o.id = $1 AND o.aggregate_type = 'payment' AND o.type = 'payment.created'
        UNION ALL
        SELECT $4::uuid
          FROM remit.outbox_heads h
         WHERE h.aggregate_type = 'payment' AND h.aggregate_id = $4::uuid::text AND h.purged_version > 0
         LIMIT 1
      ), payment AS MATERIALIZED (
        SELECT p.*
          FROM received
          JOIN remit.payments p ON p.id = (SELECT payment_id FROM event)
           FOR NO KEY UPDATE OF p
      )
      SELECT EXISTS (SELECT FROM received) AS is_new,
             clock_timestamp() AS now,
             (SELECT ${PAYMENT_JSON} FROM payment p) AS payment,
             (SELECT ${ACCOUNT_JSON} FROM payment p JOIN remit.accounts a ON a.id = p.source) AS source,
             (SELECT ${ACCOUNT_JSON} FROM payment p JOIN remit.accounts a ON a.id = p.destination) AS destination`,
    },
    [message.messageId, message.type, message.payload, claimedPaymentId],
  );
  if (row === undefined) throw new Error("receive_message returned no row");
  return {
    isNew: row.is_new,
    now: row.now,
    payment: row.payment === null ? null : toPaymentState(row.payment),
    source: row.source === null ? null : toAccountState(row.source),
    destination: row.destination === null ? null : toAccountState(row.destination),
  };
}

export interface StandingBooking {
  readonly outcome: "booked" | "refused";
  readonly error: string | null;
  readonly transactionId: string | null;
  readonly payment: {
    readonly paymentId: string;
    readonly merchant: string;
    readonly idempotencyKey: string;
    readonly status: PaymentStatus;
    readonly failureCode: string | null;
  } | null;
}

/** What was decided about a message before, from the inbox or, after its purge, from the ledger. */
export async function readBooking(
  tx: Tx,
  { messageId, paymentId }: { messageId: string; paymentId: string | null },
): Promise<StandingBooking> {
  const [row] = await tx.run<{
    outcome: "booked" | "refused" | null;
    error: string | null;
    transaction_id: string | null;
    payment_id: string | null;
    merchant: string;
    idempotency_key: string;
    status: PaymentStatus;
    failure_code: string | null;
  }>(
    {
      name: "read_booking",
      text: `SELECT i.outcome, i.error, t.id AS transaction_id,
                    p.id AS payment_id, p.merchant, p.idempotency_key, p.status, p.failure_code
               FROM (SELECT $1::uuid AS message_id, $2::uuid AS payment_id) m
               LEFT JOIN remit.inbox i ON i.consumer = '${CONSUMER}' AND i.message_id = m.message_id
               LEFT JOIN remit.ledger_transactions t ON t.message_id = m.message_id
               LEFT JOIN remit.outbox o ON o.id = m.message_id AND o.aggregate_type = 'payment'
               LEFT JOIN remit.payments p ON p.id = coalesce(t.payment_id, o.aggregate_id::uuid, m.payment_id)
              LIMIT 1`,
    },
    [messageId, paymentId],
  );
  return {
    outcome: row?.outcome ?? "booked",
    error: row?.error ?? null,
    transactionId: row?.transaction_id ?? null,
    payment:
      row === undefined || row.payment_id === null
        ? null
        : {
            paymentId: row.payment_id,
            merchant: row.merchant,
            idempotencyKey: row.idempotency_key,
            status: row.status,
            failureCode: row.failure_code,
          },
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

export interface Booking {
  readonly messageId: string;
  readonly payment: PaymentState;
  readonly transactionId: string;
  readonly entryIds: { readonly debit: string; readonly credit: string };
}

/**
 * Books an automatic payment in one statement, its parts chained so that what doesn't touch an account comes first: the
 * accounts are locked last, in the one order that all writers use (kind rank, id), so a busy account is held for the
 * posting and the commit only. The hold is let go before the debit, or the account would look overdrawn.
 */
export async function bookPayment(tx: Tx, booking: Booking, event: OutboxEvent): Promise<void> {
  const { payment } = booking;
  await tx.run(
    {
      name: "book_payment",
      text: `
      WITH transaction AS (
        INSERT INTO remit.ledger_transactions (id, message_id, payment_id, kind)
        VALUES ($1, $2, $3, 'payment')
        RETURNING id
      ), event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        SELECT $4, $5, $6, $7, $8, $9, $10 FROM transaction
        RETURNING aggregate_version
      ), payment AS (
        UPDATE remit.payments
           SET status = 'settled', captured_amount = amount, version = event.aggregate_version,
               updated_at = clock_timestamp(), settled_at = clock_timestamp()
          FROM event
         WHERE id = $3
        RETURNING id, source, destination, amount, currency
      ), locked AS MATERIALIZED (
        SELECT a.id
          FROM payment p
          JOIN remit.accounts a ON a.id IN (p.source, p.destination)
         ORDER BY CASE a.kind WHEN 'customer' THEN 0 WHEN 'merchant' THEN 1 WHEN 'fee' THEN 2 ELSE 3 END, a.id
           FOR NO KEY UPDATE OF a
      ), released AS (
        UPDATE remit.holds h
           SET remaining = 0
         WHERE h.payment_id = $3 AND h.refund_id IS NULL AND (SELECT count(*) FROM locked) = 2
        RETURNING h.payment_id
      )
      INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
      SELECT entry.id, $1, entry.account_id, entry.direction, p.amount, p.currency
        FROM released
        JOIN payment p ON p.id = released.payment_id
       CROSS JOIN LATERAL (VALUES ($11::uuid, p.source, 'debit'), ($12::uuid, p.destination, 'credit')) entry (id, account_id, direction)`,
    },
    [
      booking.transactionId,
      booking.messageId,
      payment.paymentId,
      ...eventValues(event),
      booking.entryIds.debit,
      booking.entryIds.credit,
    ],
  );
}

/** Ends a pending payment without moving money: hold released, event written, in one statement. */
export async function endPayment(
  tx: Tx,
  end: { paymentId: string; status: "failed" | "cancelled"; failureCode: string | null },
  event: OutboxEvent,
): Promise<void> {
  await tx.run(
    {
      name: "end_payment",
      text: `
      WITH event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        VALUES ($4, $5, $6, $7, $8, $9, $10)
        RETURNING aggregate_version
      ), payment AS (
        UPDATE remit.payments
           SET status = $2, failure_code = $3, version = event.aggregate_version, updated_at = clock_timestamp()
          FROM event
         WHERE id = $1
        RETURNING id
      )
      UPDATE remit.holds h
         SET remaining = 0
        FROM payment
       WHERE h.payment_id = payment.id AND h.refund_id IS NULL`,
    },
    [end.paymentId, end.status, end.failureCode, ...eventValues(event)],
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

function toPaymentState(row: PaymentRow): PaymentState {
  return { ...row, amount: BigInt(row.amount), version: Number(row.version) };
}

/** An event's values in the order in which the statements here list the columns of the outbox. */
function eventValues(event: OutboxEvent): unknown[] {
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
