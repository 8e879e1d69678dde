import type { PaymentState } from "../domain/decisions.ts";
import type { ErrorCode } from "../domain/errors.ts";
import type { OutboxEvent } from "../domain/events.ts";
import type { CaptureState } from "../domain/operation-decisions.ts";
import type { PartStatus, PaymentStatus, RecordedParameters } from "../domain/payment.ts";
import type { Tx } from "./database.ts";
import { eventValues } from "./event-values.ts";
import { PAYMENT_JSON, toPaymentState } from "./payment-rows.ts";
import type { PaymentRow } from "./payment-rows.ts";

/** Statements of captures, voids and refunds. Order of locks: key, payment, account. */

export type Operation = "capture" | "void" | "refund";

export interface OperationClaim {
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly operation: Operation;
  readonly fingerprint: string;
  readonly requestId: string;
  readonly notAfter: string;
  readonly paymentId: string;
  /** Of the capture or refund that it makes; null for a void. */
  readonly partId: string | null;
  readonly parameters: RecordedParameters;
}

/**
 * Claims the key and, if it is new, locks the payment. The key is claimed as accepted; `refuseKey` changes that in the
 * same transaction. What the payment's captures are, a later statement must read: only that sees what a competitor
 * committed while the lock was waited for.
 */
export async function claimOperation(
  tx: Tx,
  claim: OperationClaim,
): Promise<{ isNew: boolean; payment: PaymentState | null }> {
  const [row] = await tx.run<{ is_new: boolean; payment: PaymentRow | null }>(
    {
      name: "claim_operation",
      text: `
      WITH claimed AS MATERIALIZED (
        INSERT INTO remit.idempotency_keys (merchant, key, operation, fingerprint, request_id, outcome)
        SELECT $1, $2, $3, $4, $5, $6
         WHERE clock_timestamp() < $7::timestamptz
            ON CONFLICT (merchant, key) DO NOTHING
        RETURNING key
      ), payment AS MATERIALIZED (
        SELECT p.*
          FROM claimed
          JOIN remit.payments p ON p.id = $8 AND p.merchant = $1
           FOR NO KEY UPDATE OF p
      )
      SELECT EXISTS (SELECT FROM claimed) AS is_new,
             (SELECT ${PAYMENT_JSON} FROM payment p) AS payment`,
    },
    [
      claim.merchant,
      claim.idempotencyKey,
      claim.operation,
      claim.fingerprint,
      claim.requestId,
      JSON.stringify({
        decision: "accepted",
        paymentId: claim.paymentId,
        ...(claim.partId === null ? {} : { partId: claim.partId }),
        parameters: claim.parameters,
      }),
      claim.notAfter,
      claim.paymentId,
    ],
  );
  if (row === undefined) throw new Error("claim_operation returned no row");
  return {
    isNew: row.is_new,
    payment: row.payment === null ? null : toPaymentState(row.payment),
  };
}

/** The decision that stands about a key of any operation. */
export interface StandingOperation {
  readonly operation: string;
  readonly fingerprint: string;
  readonly requestId: string;
  readonly parameters: RecordedParameters | null;
  readonly refusal: { code: ErrorCode; message: string } | null;
  readonly paymentId: string | null;
  /** As it is now; null where it was a void, or refused. */
  readonly part: { id: string; amount: bigint; final: boolean; status: PartStatus } | null;
  readonly paymentStatus: PaymentStatus | null;
}

/** Null where the key was never claimed. A statement of its own: its snapshot must see the winner's commit. */
export async function readOperation(
  tx: Tx,
  { merchant, key }: { merchant: string; key: string },
): Promise<StandingOperation | null> {
  const [row] = await tx.run<{
    operation: string;
    fingerprint: string;
    request_id: string;
    outcome: {
      decision: string;
      code: ErrorCode;
      message: string;
      parameters?: RecordedParameters;
      paymentId?: string;
    };
    part_id: string | null;
    amount: string;
    final: boolean | null;
    part_status: PartStatus;
    payment_status: PaymentStatus | null;
  }>(
    {
      name: "read_operation",
      text: `SELECT k.operation, k.fingerprint, k.request_id, k.outcome,
                    coalesce(c.id, r.id) AS part_id, coalesce(c.amount, r.amount) AS amount, c.final,
                    coalesce(c.status, r.status) AS part_status, p.status AS payment_status
               FROM remit.idempotency_keys k
               LEFT JOIN remit.captures c ON c.id = (k.outcome ->> 'partId')::uuid
               LEFT JOIN remit.refunds r ON r.id = (k.outcome ->> 'partId')::uuid
               LEFT JOIN remit.payments p ON p.id = (k.outcome ->> 'paymentId')::uuid
              WHERE k.merchant = $1
                AND k.key = $2`,
    },
    [merchant, key],
  );
  if (row === undefined) return null;
  const { outcome } = row;
  return {
    operation: row.operation,
    fingerprint: row.fingerprint,
    requestId: row.request_id,
    parameters: outcome.parameters ?? null,
    refusal:
      outcome.decision === "refused" ? { code: outcome.code, message: outcome.message } : null,
    paymentId: outcome.paymentId ?? null,
    part:
      row.part_id === null
        ? null
        : {
            id: row.part_id,
            amount: BigInt(row.amount),
            final: row.final === true,
            status: row.part_status,
          },
    paymentStatus: row.payment_status,
  };
}

/** A payment's captures in the order in which they were made, and the time now; under the payment's lock they stay so. */
export async function readCaptures(
  tx: Tx,
  paymentId: string,
): Promise<{ captures: CaptureState[]; now: Date }> {
  const [row] = await tx.run<{
    now: Date;
    captures: {
      captureId: string;
      amount: string;
      status: PartStatus;
      transactionId: string | null;
    }[];
  }>(
    {
      name: "read_captures",
      text: `SELECT clock_timestamp() AS now,
                    coalesce(jsonb_agg(jsonb_build_object('captureId', c.id, 'amount', c.amount::text, 'status', c.status, 'transactionId', t.id)
                                       ORDER BY c.id), '[]') AS captures
               FROM remit.captures c
               LEFT JOIN remit.ledger_transactions t ON t.capture_id = c.id
              WHERE c.payment_id = $1`,
    },
    [paymentId],
  );
  if (row === undefined) throw new Error("read_captures returned no row");
  const captures = row.captures.map((capture) => ({ ...capture, amount: BigInt(capture.amount) }));
  return { captures, now: row.now };
}

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
