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
  readonly capturedMinor: string;
  readonly captured: string;
  readonly refundedMinor: string;
  readonly refunded: string;
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
  const capturedMinor = status === "settled" ? amountMinor : "0";
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
    captured: formatMajor(BigInt(capturedMinor), currency),
    refundedMinor: "0",
    refunded: formatMajor(0n, currency),
    replayed: answer.replayed,
    failureCode: end?.failureCode ?? null,
    workflowId: answer.workflowId,
    workflowUrl: answer.workflowUrl,
  };
}
