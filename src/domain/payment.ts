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

export const CAPTURE_MODES = ["automatic", "manual"] as const;
/** `automatic`: the ledger books the whole amount. `manual`: it stays authorized until it is captured, voided or expired. */
export type CaptureMode = (typeof CAPTURE_MODES)[number];

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
  /** With manual capture alone: an authorization ends by itself after so long. */
  readonly expiresInSeconds?: number;
}

/** How long an authorization stands unless the caller says, and the bounds of what may be said. */
export const EXPIRES_SECONDS = { fallback: 7 * 86_400, min: 1, max: 30 * 86_400 } as const;

/** @throws DomainError `usage` */
export function assertCapture(
  { capture, expiresInSeconds }: Pick<PaymentParameters, "capture" | "expiresInSeconds">,
  path: string,
): void {
  if (!CAPTURE_MODES.includes(capture)) {
    throw new DomainError(
      "usage",
      `${path}: expected ${CAPTURE_MODES.join(" or ")}, found ${JSON.stringify(capture)}`,
    );
  }
  const { min, max } = EXPIRES_SECONDS;
  const isWithin =
    Number.isInteger(expiresInSeconds) &&
    Number(expiresInSeconds) >= min &&
    Number(expiresInSeconds) <= max;
  if (capture === "manual" ? isWithin : expiresInSeconds === undefined) return;
  throw new DomainError(
    "usage",
    capture === "manual"
      ? `expires: expected ${min} to ${max} seconds, found ${String(expiresInSeconds)}`
      : "expires: goes with capture manual only, an automatic payment does not expire",
  );
}

export const PART_STATUSES = ["pending", "settled", "failed"] as const;
/** Of a capture or a refund: recorded, booked, or refused by the ledger. */
export type PartStatus = (typeof PART_STATUSES)[number];

/** The parameters of a key's first request by name, with the operation that the key was used for. */
export type RecordedParameters = Readonly<Record<string, string | number | boolean | null>>;
