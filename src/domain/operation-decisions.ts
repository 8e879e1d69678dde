import { refuseMove } from "./decisions.ts";
import type { AccountState, PaymentState, Refusal } from "./decisions.ts";
import { formatMajor } from "./money.ts";
import type { PartStatus, PaymentStatus } from "./payment.ts";

/** What may be done to a recorded payment, decided under its row lock; amounts in minor units. */

/** A capture as a decision needs it; in the order in which they were made. */
export interface CaptureState {
  readonly captureId: string;
  readonly amount: bigint;
  readonly status: PartStatus;
  /** Where it is booked. */
  readonly transactionId: string | null;
}

export interface CaptureRequest {
  /** Null: what is left. */
  readonly amount: bigint | null;
  readonly final: boolean;
  /** Null where the caller didn't say. */
  readonly currency: string | null;
}

export interface CaptureDecision {
  readonly amount: bigint;
  readonly final: boolean;
  /** Given back to the source at once, because nothing more can be captured. */
  readonly released: bigint;
}

/** Only an authorized payment, before it expires, one capture at a time, never more than is left. */
export function decideCapture(
  payment: PaymentState,
  request: CaptureRequest,
  { captures, now }: { captures: readonly CaptureState[]; now: Date },
): CaptureDecision | Refusal {
  if (payment.capture === "automatic") {
    return notCapturable(payment, "is captured automatically");
  }
  if (payment.status !== "authorized") return notCapturable(payment, `is ${payment.status}`);
  if (payment.expiresAt !== null && payment.expiresAt <= now) {
    return notCapturable(payment, `expired at ${payment.expiresAt.toISOString()}`);
  }
  const foreign = refuseCurrency(payment, request.currency);
  if (foreign !== null) return foreign;
  const open = captures.find(({ status }) => status === "pending");
  if (open !== undefined) {
    return {
      code: "capture_in_progress",
      message: `capture ${open.captureId} of payment ${payment.paymentId} is not booked yet`,
    };
  }
  const left = payment.amount - payment.captured;
  const amount = request.amount ?? left;
  if (amount > left) {
    return {
      code: "capture_exceeds_authorized",
      message: `payment ${payment.paymentId} has ${money(left, payment)} left to capture, ${money(amount, payment)} are asked for`,
    };
  }
  const final = request.final || amount === left;
  return { amount, final, released: final ? left - amount : 0n };
}

/** Null, or why the rest of the authorization can't be given back. */
export function refuseVoid(payment: PaymentState): Refusal | null {
  if (payment.status === "authorized") return null;
  const hint = payment.status === "pending" ? ": cancel it instead" : "";
  return {
    code: "payment_not_voidable",
    message: `payment ${payment.paymentId} is ${payment.status}${hint}`,
  };
}

/** Null, or why a cancel that found the payment in this state has not ended it. */
export function refuseCancel({
  paymentId,
  status,
}: {
  paymentId: string;
  status: PaymentStatus;
}): Refusal | null {
  if (status === "cancelled" || status === "voided") return null;
  return {
    code: "payment_not_cancellable",
    message: `payment ${paymentId} is ${status}${status === "settled" || status === "captured" ? ": refund it instead" : ""}`,
  };
}

/** Where a payment stands once nothing more can be captured of it. */
export interface Remainder {
  readonly status: PaymentStatus;
  /** What its hold keeps, for captures that are on their way. */
  readonly held: bigint;
  readonly released: bigint;
  readonly lastTransactionId: string | null;
}

/** Ends an authorization: nothing captured → `ending`, else what was captured goes on to be settled. */
export function endAuthorization(
  payment: PaymentState,
  captures: readonly CaptureState[],
  ending: "voided" | "expired",
): Remainder {
  const pending = sum(captures, "pending");
  const settled = sum(captures, "settled");
  return {
    status: pending > 0n ? "captured" : settled > 0n ? "settled" : ending,
    held: pending,
    released: payment.amount - pending - settled,
    lastTransactionId:
      captures.findLast(({ status }) => status === "settled")?.transactionId ?? null,
  };
}

/** What is booked of a payment: automatic at its end, manual capture by capture. */
export function bookedAmount(payment: PaymentState, captures: readonly CaptureState[]): bigint {
  if (payment.capture === "manual") return sum(captures, "settled");
  return payment.status === "settled" ? payment.amount : 0n;
}

/** Never more than what is booked and not refunded yet, and only what the payment's destination can give back now. */
export function decideRefund(
  payment: PaymentState,
  request: { amount: bigint | null; currency: string | null },
  {
    booked,
    source,
    destination,
  }: { booked: bigint; source: AccountState; destination: AccountState },
): { amount: bigint } | Refusal {
  const foreign = refuseCurrency(payment, request.currency);
  if (foreign !== null) return foreign;
  if (booked === 0n) {
    return {
      code: "payment_not_refundable",
      message: `payment ${payment.paymentId} is ${payment.status} and nothing of it is booked`,
    };
  }
  const left = booked - payment.refunded;
  if (left === 0n && request.amount === null) {
    return {
      code: "payment_not_refundable",
      message: `payment ${payment.paymentId} is refunded: nothing is left of ${money(booked, payment)}`,
    };
  }
  const amount = request.amount ?? left;
  if (amount > left) {
    return {
      code: "refund_exceeds_captured",
      message: `payment ${payment.paymentId} has ${money(left, payment)} left to refund, ${money(amount, payment)} are asked for`,
    };
  }
  return refuseMove({ source: destination, destination: source, amount }) ?? { amount };
}

function refuseCurrency(payment: PaymentState, currency: string | null): Refusal | null {
  if (currency === null || currency === payment.currency) return null;
  return {
    code: "currency_mismatch",
    message: `payment ${payment.paymentId} is in ${payment.currency}, the request in ${currency}`,
  };
}

function notCapturable({ paymentId }: PaymentState, why: string): Refusal {
  return { code: "payment_not_capturable", message: `payment ${paymentId} ${why}` };
}

function money(amount: bigint, { currency }: PaymentState): string {
  return `${formatMajor(amount, currency)} ${currency}`;
}

function sum(captures: readonly CaptureState[], status: PartStatus): bigint {
  return captures
    .filter((capture) => capture.status === status)
    .reduce((total, { amount }) => total + amount, 0n);
}
