import { DomainError } from "./errors.ts";

export const PAYMENT_STATUSES = [
  "pending",
  "authorized",
  "captured",
  "settled",
  "failed",
  "cancelled",
  "voided",
  "expired",
] as const;
export type PaymentStatus = (typeof PAYMENT_STATUSES)[number];

/**
 * Manual capture is laid out in tables and states and not built yet.
 * @throws DomainError `usage`
 */
export function assertCapture(value: string, path: string): void {
  if (value === "automatic") return;
  throw new DomainError(
    "usage",
    `${path}: expected automatic, the only capture that is built so far, found ${JSON.stringify(value)}`,
  );
}

export type CaptureMode = "automatic" | "manual";

const TERMINAL: ReadonlySet<PaymentStatus> = new Set([
  "settled",
  "failed",
  "cancelled",
  "voided",
  "expired",
]);

/** A terminal status never changes; refunds move money back without touching it. */
export function isTerminal(status: PaymentStatus): boolean {
  return TERMINAL.has(status);
}

/** What a caller asks for, checked; `amountMinor` in the currency's minor unit as a decimal string. */
export interface PaymentParameters {
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly source: string;
  readonly destination: string;
  readonly amountMinor: string;
  readonly currency: string;
  readonly capture: CaptureMode;
  readonly description: string | null;
}
