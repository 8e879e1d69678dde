import {
  ApplicationFailure,
  setCurrentDetails,
  upsertSearchAttributes,
} from "@temporalio/workflow";
import type { PaymentStanding } from "../activities/cancel-payment.ts";
import { SEARCH_KEYS } from "./messages.ts";
import type { PaymentEnd } from "./messages.ts";
import { readPayment } from "./payment-operations.ts";

/** How the payment stands in PostgreSQL, which alone knows. */
export async function standingOf(paymentId: string): Promise<PaymentStanding> {
  const standing = await readPayment({ paymentId });
  if (standing !== null) return standing;
  throw ApplicationFailure.nonRetryable(`payment ${paymentId} is gone`, "payment_not_found");
}

/** Says in the Web UI how a payment ended, and answers so. */
export function endOf(paymentId: string, { status, failureCode }: PaymentStanding): PaymentEnd {
  setCurrentDetails(
    failureCode === null
      ? `**${status}**: payment \`${paymentId}\`.`
      : `**${status}**: payment \`${paymentId}\` (\`${failureCode}\`). The hold was released.`,
  );
  if (status !== "settled") upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: status }]);
  return { paymentId, status, failureCode };
}
