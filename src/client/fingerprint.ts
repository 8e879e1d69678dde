import { createHash } from "node:crypto";
import type { PaymentParameters } from "../domain/payment.ts";

/**
 * SHA-256, hex, of what a key stands for: two requests are the same exactly if this is the same. Merchant and key are
 * the key itself and stay out. The prefix is versioned, because fingerprints are kept for ever.
 */
export function fingerprintOf(parameters: PaymentParameters): string {
  const { source, destination, amountMinor, currency, capture, description } = parameters;
  const compared = { amountMinor, capture, currency, description, destination, source };
  return createHash("sha256")
    .update(`remit:v1:pay:${canonicalJson(compared)}`)
    .digest("hex");
}

/** JSON with sorted keys, so that the order in which code names its fields can't change a fingerprint. */
export function canonicalJson(value: Readonly<Record<string, string | null>>): string {
  return JSON.stringify(value, Object.keys(value).toSorted());
}
