import type { PaymentState } from "../domain/decisions.ts";
import type { EventData } from "../domain/events.ts";

/** The part of every payment event that stays the same for the life of a payment. */
export function eventData(
  payment: Pick<
    PaymentState,
    | "paymentId"
    | "merchant"
    | "idempotencyKey"
    | "source"
    | "destination"
    | "amount"
    | "currency"
    | "capture"
  >,
): EventData<"payment.created"> {
  return {
    paymentId: payment.paymentId,
    merchant: payment.merchant,
    idempotencyKey: payment.idempotencyKey,
    source: payment.source,
    destination: payment.destination,
    amountMinor: payment.amount.toString(),
    currency: payment.currency,
    capture: payment.capture,
  };
}
