import { formatMajor } from "../domain/money.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import type { PaymentEnd } from "../workflows/messages.ts";
import type { PaymentAnswer } from "./payment-client.ts";

/** A payment as commands print it; amounts in both spellings. */
export interface PaymentDocument {
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly status: PaymentStatus;
  readonly amountMinor: string;
  readonly amount: string;
  readonly currency: string;
  readonly source: string;
  readonly destination: string;
  readonly capture: string;
  readonly description: string | null;
  /** This and what follows: null where Temporal alone was asked, which doesn't know it. */
  readonly capturedMinor: string | null;
  readonly captured: string | null;
  readonly refundedMinor: string | null;
  readonly refunded: string | null;
  readonly replayed: boolean;
  readonly failureCode: string | null;
  readonly workflowId: string;
  readonly workflowUrl: string | null;
}

/** What is known of a payment without PostgreSQL: the receipt and, once it came, the end. */
export function documentOfAnswer(answer: PaymentAnswer, end?: PaymentEnd): PaymentDocument {
  const { merchant, idempotencyKey, amountMinor, currency } = answer.parameters;
  const { source, destination, capture, description } = answer.parameters;
  const status = end === undefined || end.status === "refused" ? answer.status : end.status;
  // Parts may have been captured and refunded since the first answer, and of an authorization by now.
  const isAsItBegan = !answer.replayed && (capture === "automatic" || status === "authorized");
  const refundedMinor = isAsItBegan ? "0" : null;
  const capturedMinor =
    capture === "automatic" ? (status === "settled" ? amountMinor : "0") : refundedMinor;
  const inMajor = (minor: string | null): string | null =>
    minor === null ? null : formatMajor(BigInt(minor), currency);
  return {
    paymentId: answer.paymentId,
    merchant,
    idempotencyKey,
    status,
    amountMinor,
    amount: formatMajor(BigInt(amountMinor), currency),
    currency,
    source,
    destination,
    capture,
    description,
    capturedMinor,
    captured: inMajor(capturedMinor),
    refundedMinor,
    refunded: inMajor(refundedMinor),
    replayed: answer.replayed,
    failureCode: end?.failureCode ?? null,
    workflowId: answer.workflowId,
    workflowUrl: answer.workflowUrl,
  };
}
