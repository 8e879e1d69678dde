import type { PaymentParameters } from "../domain/payment.ts";
import type { Tx } from "./database.ts";

/** What a payment's workflow was started with, read back from its rows. */
export interface RecordedPayment extends PaymentParameters {
  readonly paymentId: string;
  readonly fingerprint: string;
  readonly requestId: string;
}

export interface OpenPayment {
  readonly recorded: RecordedPayment;
  /** Its first event, where that was published and never came in: the queue or its workflow lost it. */
  readonly lost: {
    readonly messageId: string;
    readonly type: string;
    readonly payload: string;
  } | null;
}

/** Payments that aren't at their end and are older than any that still runs its normal course; oldest first. */
export async function openPayments(
  tx: Tx,
  { olderThanSeconds, after, limit }: { olderThanSeconds: number; after: string; limit: number },
): Promise<OpenPayment[]> {
  const rows = await tx.run<RecordedPayment & Pick<OpenPayment, "lost"> & Record<string, unknown>>(
    {
      name: "open_payments",
      text: `SELECT p.id AS "paymentId", p.merchant, p.idempotency_key AS "idempotencyKey", p.source, p.destination,
                    p.amount AS "amountMinor", p.currency, p.capture, p.description, k.fingerprint, k.request_id AS "requestId",
                    CASE WHEN o.id IS NOT NULL THEN jsonb_build_object('messageId', o.id, 'type', o.type, 'payload', o.payload::text) END AS lost
               FROM remit.payments p
               JOIN remit.idempotency_keys k ON k.merchant = p.merchant AND k.key = p.idempotency_key
               LEFT JOIN remit.outbox o
                      ON o.aggregate_type = 'payment' AND o.aggregate_id = p.id::text AND o.aggregate_version = 1
                     AND o.status = 'PUBLISHED' AND o.published_at < clock_timestamp() - $1 * interval '1 second'
                     AND NOT EXISTS (SELECT FROM remit.inbox i WHERE i.consumer = 'ledger' AND i.message_id = o.id)
              WHERE p.status IN ('pending', 'authorized', 'captured')
                AND p.created_at < clock_timestamp() - $1 * interval '1 second'
                AND p.id > $2
              ORDER BY p.id
              LIMIT $3`,
    },
    [olderThanSeconds, after, limit],
  );
  return rows.map(({ lost, ...recorded }) => ({ recorded, lost }));
}
