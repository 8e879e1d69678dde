import type { CaptureMode } from "../domain/payment.ts";
import type { Tx } from "./database.ts";

/** What a payment's workflow was started with, read back from its rows. */
export interface OpenPayment {
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly source: string;
  readonly destination: string;
  readonly amountMinor: string;
  readonly currency: string;
  readonly capture: CaptureMode;
  readonly description: string | null;
  readonly fingerprint: string;
  readonly requestId: string;
}

/** Payments that aren't at their end and are older than any that still runs its normal course; oldest first. */
export async function openPayments(
  tx: Tx,
  { olderThanSeconds, after, limit }: { olderThanSeconds: number; after: string; limit: number },
): Promise<OpenPayment[]> {
  return await tx.run<OpenPayment & Record<string, unknown>>(
    {
      name: "open_payments",
      text: `SELECT p.id AS "paymentId", p.merchant, p.idempotency_key AS "idempotencyKey", p.source, p.destination,
                    p.amount AS "amountMinor", p.currency, p.capture, p.description, k.fingerprint, k.request_id AS "requestId"
               FROM remit.payments p
               JOIN remit.idempotency_keys k ON k.merchant = p.merchant AND k.key = p.idempotency_key
              WHERE p.status IN ('pending', 'authorized', 'captured')
                AND p.created_at < clock_timestamp() - $1 * interval '1 second'
                AND p.id > $2
              ORDER BY p.id
              LIMIT $3`,
    },
    [olderThanSeconds, after, limit],
  );
}
