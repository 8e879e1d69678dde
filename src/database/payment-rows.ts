import type { PaymentState } from "../domain/decisions.ts";
import type { CaptureMode, PaymentStatus } from "../domain/payment.ts";

/** A payment as statements carry it in one JSON column: digits as text, since JSON numbers lose those beyond 2^53. */
export interface PaymentRow {
  paymentId: string;
  merchant: string;
  idempotencyKey: string;
  source: string;
  destination: string;
  amount: string;
  currency: string;
  capture: CaptureMode;
  status: PaymentStatus;
  captured: string;
  refunded: string;
  expiresAt: string | null;
  version: string;
}

/** Of a payment that the statement calls `p`. */
export const PAYMENT_JSON = `jsonb_build_object(
          'paymentId', p.id, 'merchant', p.merchant, 'idempotencyKey', p.idempotency_key,
          'source', p.source, 'destination', p.destination, 'amount', p.amount::text, 'currency', p.currency,
          'capture', p.capture, 'status', p.status, 'captured', p.captured_amount::text, 'refunded', p.refunded_amount::text,
          'expiresAt', p.expires_at, 'version', p.version::text)`;

export function toPaymentState(row: PaymentRow): PaymentState {
  return {
    ...row,
    amount: BigInt(row.amount),
    captured: BigInt(row.captured),
    refunded: BigInt(row.refunded),
    expiresAt: row.expiresAt === null ? null : new Date(row.expiresAt),
    version: Number(row.version),
  };
}
