import { createHash } from "node:crypto";
import type { PaymentParameters, RecordedParameters } from "./payment.ts";

/**
 * SHA-256, hex, of what a key stands for: two requests are the same exactly if this is the same. Merchant and key are
 * the key itself and stay out. The prefix is versioned, because fingerprints are kept for ever.
 */
export function fingerprintOf(parameters: PaymentParameters): string {
  const { source, destination, amountMinor, currency, capture, description } = parameters;
  const { expiresInSeconds } = parameters;
  return operationFingerprint("pay", {
    amountMinor,
    capture,
    currency,
    description,
    destination,
    source,
    ...(expiresInSeconds === undefined ? {} : { expiresInSeconds }),
  });
}

/** The same for whatever else stands under a key. */
export function operationFingerprint(operation: string, compared: RecordedParameters): string {
  return createHash("sha256")
    .update(`remit:v1:${operation}:${canonicalJson(compared)}`)
    .digest("hex");
}

/** JSON with sorted keys, so that the order in which code names its fields can't change a fingerprint. */
export function canonicalJson(value: RecordedParameters): string {
  return JSON.stringify(value, Object.keys(value).toSorted());
}
