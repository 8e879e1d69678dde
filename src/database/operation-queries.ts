import type { PaymentState } from "../domain/decisions.ts";
import type { ErrorCode } from "../domain/errors.ts";
import type { CaptureState } from "../domain/operation-decisions.ts";
import type { PartStatus, PaymentStatus, RecordedParameters } from "../domain/payment.ts";
import type { Tx } from "./database.ts";
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
