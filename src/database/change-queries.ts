import type { OutboxEvent } from "../domain/events.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import type { Tx } from "./database.ts";
import { eventValues } from "./event-values.ts";

/** Statements that change a payment, capture or refund together with its hold and its events. */

/** Where a payment goes: its new state, what its hold keeps, and the events that say so. */
export interface PaymentChange {
  readonly paymentId: string;
  readonly status: PaymentStatus;
  readonly captured: bigint;
  readonly held: bigint;
  readonly failureCode?: string | null;
}

/** Changes a payment, its hold and its outbox in one statement; the deferred triggers check at COMMIT that they agree. */
export async function changePayment(
  tx: Tx,
  change: PaymentChange,
  events: readonly OutboxEvent[],
): Promise<void> {
  await tx.run(
    {
      name: "change_payment",
      text: `
      WITH event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        SELECT e.id, 'payment', $1::uuid::text, e.version, e.type, e.payload, e.headers
          FROM jsonb_to_recordset($6::jsonb) AS e (id uuid, version bigint, type text, payload jsonb, headers jsonb)
         ORDER BY e.version
        RETURNING aggregate_version
      ), payment AS (
        UPDATE remit.payments
           SET status = $2, captured_amount = $3, failure_code = $5, version = (SELECT max(aggregate_version) FROM event),
               updated_at = clock_timestamp(), settled_at = CASE $2::text WHEN 'settled' THEN clock_timestamp() END
         WHERE id = $1
        RETURNING id
      )
      UPDATE remit.holds h
         SET remaining = $4
        FROM payment
       WHERE h.payment_id = payment.id AND h.refund_id IS NULL AND h.remaining <> $4`,
    },
    [
      change.paymentId,
      change.status,
      change.captured,
      change.held,
      change.failureCode ?? null,
      JSON.stringify(
        events.map((event) => ({
          id: event.messageId,
          version: event.aggregateVersion,
          type: event.type,
          payload: JSON.parse(event.payload) as unknown,
          headers: JSON.parse(event.headers) as unknown,
        })),
      ),
    ],
  );
}

export async function insertCapture(
  tx: Tx,
  capture: {
    captureId: string;
    paymentId: string;
    idempotencyKey: string;
    amount: bigint;
    final: boolean;
  },
): Promise<void> {
  await tx.run(
    {
      name: "insert_capture",
      text: `INSERT INTO remit.captures (id, payment_id, idempotency_key, amount, final)
             VALUES ($1, $2, $3, $4, $5)`,
    },
    [capture.captureId, capture.paymentId, capture.idempotencyKey, capture.amount, capture.final],
  );
}

/** Writes refund, hold on the account that gives the money back, and event, in one statement. */
export async function insertRefund(
  tx: Tx,
  refund: {
    refundId: string;
    paymentId: string;
    idempotencyKey: string;
    amount: bigint;
    currency: string;
    reason: string | null;
    holdId: string;
    accountId: string;
  },
  event: OutboxEvent,
): Promise<void> {
  await tx.run(
    {
      name: "insert_refund",
      text: `
      WITH refund AS (
        INSERT INTO remit.refunds (id, payment_id, idempotency_key, amount, currency, reason)
        VALUES ($1, $2, $3, $4, $5, $6)
        RETURNING id
      ), event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        SELECT $9, $10, $11, $12, $13, $14, $15 FROM refund
      )
      INSERT INTO remit.holds (id, account_id, payment_id, refund_id, amount)
      SELECT $7, $8, $2, refund.id, $4 FROM refund`,
    },
    [
      refund.refundId,
      refund.paymentId,
      refund.idempotencyKey,
      refund.amount,
      refund.currency,
      refund.reason,
      refund.holdId,
      refund.accountId,
      ...eventValues(event),
    ],
  );
}

/** Ends a capture that is on its way. */
export async function endCapture(
  tx: Tx,
  { captureId, failureCode }: { captureId: string; failureCode: string | null },
): Promise<void> {
  await tx.run(
    {
      name: "end_capture",
      text: `UPDATE remit.captures
                SET status = CASE WHEN $2::text IS NULL THEN 'settled' ELSE 'failed' END, failure_code = $2,
                    settled_at = CASE WHEN $2::text IS NULL THEN clock_timestamp() END
              WHERE id = $1`,
    },
    [captureId, failureCode],
  );
}

/** Ends a refund with its event; one that failed gives its hold back. */
export async function endRefund(
  tx: Tx,
  { refundId, failureCode }: { refundId: string; failureCode: string | null },
  event: OutboxEvent,
): Promise<void> {
  await tx.run(
    {
      name: "end_refund",
      text: `
      WITH refund AS (
        UPDATE remit.refunds
           SET status = CASE WHEN $2::text IS NULL THEN 'settled' ELSE 'failed' END, failure_code = $2,
               settled_at = CASE WHEN $2::text IS NULL THEN clock_timestamp() END
         WHERE id = $1
        RETURNING id
      ), event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        SELECT $3, $4, $5, $6, $7, $8, $9 FROM refund
      )
      UPDATE remit.holds h
         SET remaining = 0
        FROM refund
       WHERE h.refund_id = refund.id AND $2::text IS NOT NULL`,
    },
    [refundId, failureCode, ...eventValues(event)],
  );
}
