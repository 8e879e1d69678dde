import { DomainError } from "../domain/errors.ts";
import {
  assertAccountId,
  assertIdempotencyKey,
  assertMerchant,
  assertUuid,
} from "../domain/ids.ts";
import { assertCurrency, parseAmount } from "../domain/money.ts";
import { assertCapture } from "../domain/payment.ts";
import { assertText } from "../domain/text.ts";
import type { KeyedRequest, PaymentInput, RecordResult } from "../workflows/messages.ts";

/**
 * A client may be any program, in a language without our types: what the command line checks is checked again where it is
 * decided, each field by its type as well, since what only looks like a key or an id is kept as another one.
 */

export type Malformed = Extract<
  RecordResult<never>,
  { outcome: "malformed" | "refused" | "contradictory" }
>;

/** Null where the request is well-formed. */
export function malformedPayment(input: PaymentInput): Malformed | null {
  return unlessRight(input, () => {
    assertKeyed(input);
    assertUuid(input.paymentId, "paymentId");
    assertAccountId(input.source, "source");
    assertAccountId(input.destination, "destination");
    if (input.source === input.destination) {
      throw new DomainError("same_account", `source and destination are both ${input.source}`);
    }
    parseAmount({ amountMinor: input.amountMinor, currency: input.currency });
    assertCapture(input, "capture");
    if (input.description !== null) assertText(input.description, "description");
  });
}

/** What an operation says of itself beside its key, as it came. */
interface OperationRequest extends KeyedRequest {
  readonly paymentId: unknown;
  readonly refundId?: unknown;
  readonly amountMinor?: unknown;
  readonly currency?: unknown;
  readonly readAs?: unknown;
  readonly reason?: unknown;
  readonly final?: unknown;
}

/** The same of a capture, void or refund. */
export function malformedOperation(request: OperationRequest): Malformed | null {
  const { paymentId, refundId, amountMinor, currency, readAs, reason, final } = request;
  return unlessRight(request, () => {
    assertKeyed(request);
    assertUuid(paymentId, "paymentId");
    if (refundId !== undefined) assertUuid(refundId, "refundId");
    // Any currency: minor units are digits in all of them.
    if (isGiven(amountMinor)) parseAmount({ amountMinor, currency: "EUR" });
    if (isGiven(currency)) assertCurrency(currency, "currency");
    if (readAs !== undefined) assertCurrency(readAs, "readAs");
    if (isGiven(reason)) assertText(reason, "reason");
    if (final !== undefined && typeof final !== "boolean") {
      throw new DomainError("usage", "final: expected true or false");
    }
  });
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function assertKeyed(request: KeyedRequest): void {
  const { merchant, idempotencyKey, requestId, fingerprint, notAfter } = request;
  assertMerchant(merchant, "merchant");
  assertIdempotencyKey(idempotencyKey, "idempotencyKey");
  assertLike(/^[^\0]{1,64}$/u, requestId, "requestId: expected 1 to 64 characters");
  assertLike(/^[0-9a-f]{64}$/, fingerprint, "fingerprint: expected a SHA-256 in hex");
  // Until then a run asks a database that refuses it: for ever would keep its key from whom it belongs to.
  const waitsMs = typeof notAfter === "string" ? Date.parse(notAfter) - Date.now() : Number.NaN;
  if (Number.isNaN(waitsMs) || waitsMs > NOT_AFTER_MS_MAX) {
    throw new DomainError("usage", "notAfter: expected an ISO 8601 time within an hour");
  }
}

/** A client waits ten minutes at most; the rest is for clocks that differ. */
const NOT_AFTER_MS_MAX = 3_600_000;

function assertLike(pattern: RegExp, value: unknown, problem: string): void {
  if (typeof value === "string" && pattern.test(value)) return;
  throw new DomainError("usage", problem);
}

function unlessRight({ requestId }: KeyedRequest, check: () => void): Malformed | null {
  try {
    check();
    return null;
  } catch (error) {
    if (!(error instanceof DomainError)) throw error;
    return { outcome: "malformed", code: error.code, message: error.message, requestId };
  }
}
