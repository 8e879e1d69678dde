import {
  ApplicationFailure,
  setCurrentDetails,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import { SEARCH_KEYS } from "./messages.ts";
import type { PaymentEnd, PaymentStanding } from "./messages.ts";
import { readPayment } from "./payment-operations.ts";

/** How the payment stands in PostgreSQL, which alone knows. */
export async function standingOf(paymentId: string): Promise<PaymentStanding> {
  const standing = await readPayment({ paymentId });
  if (standing !== null) return standing;
  throw ApplicationFailure.nonRetryable(`payment ${paymentId} is gone`, "payment_not_found");
}

/** Says in the Web UI how a payment ended, and answers so. */
export function endOf(paymentId: string, { status, failureCode }: PaymentStanding): PaymentEnd {
  const word = `**${status.charAt(0).toUpperCase()}${status.slice(1)}**`;
  const meaning = status === "settled" ? "the ledger has booked" : "the hold was released of";
  const why = failureCode === null ? "" : ` (\`${failureCode}\`)`;
  setCurrentDetails(`${word}: ${meaning} payment \`${paymentId}\`${why}.`);
  const wasMarked = workflowInfo().typedSearchAttributes.get(SEARCH_KEYS.status) !== undefined;
  if (status !== "settled" || wasMarked) {
    upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: status }]);
  }
  return { paymentId, status, failureCode };
}
