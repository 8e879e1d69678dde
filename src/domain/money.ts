import { CURRENCY_EXPONENTS } from "./currencies.ts";
import { DomainError } from "./errors.ts";

/** 10^18 − 1: room in a PostgreSQL bigint (9.2 × 10^18) for nine such amounts in one balance. */
export const AMOUNT_MINOR_MAX = 999_999_999_999_999_999n;

export interface AmountInput {
  /** Decimal, in major units: "12.50". */
  readonly amount?: unknown;
  /** Integer digits, in minor units: "1250". */
  readonly amountMinor?: unknown;
  readonly currency: string;
  /** What stands before the field's name in messages, such as "line 7". */
  readonly path?: string;
}

/**
 * Reads exactly one of the two spellings of an amount; strings only, because a JSON number loses digits before we see it.
 * @throws DomainError `amount_invalid`, `amount_too_large` or `currency_unknown`
 */
export function parseAmount({ amount, amountMinor, currency, path }: AmountInput): bigint {
  const prefix = path === undefined ? "" : `${path}: `;
  const exponent = exponentOf(currency, `${prefix}currency`);
  const hasMajor = amount !== undefined;
  const hasMinor = amountMinor !== undefined;
  if (hasMajor === hasMinor) {
    const found = hasMajor ? "both" : "neither";
    const field = hasMajor ? "amountMinor" : "amount";
    throw amountInvalid(`${prefix}expected one of amount and amountMinor, found ${found}`, field);
  }
  return hasMajor
    ? parseMajor(amount, { currency, exponent, prefix })
    : parseMinor(amountMinor, prefix);
}

/**
 * Writes minor units in the currency's major unit, "12.50"; balances may be negative. An amount that is there in a currency
 * that no list of ours has (withdrawn, or written by other hands) is shown as what it is: "1250 minor units".
 */
export function formatMajor(amountMinor: bigint, currency: string): string {
  const exponent = CURRENCY_EXPONENTS.get(currency);
  if (exponent === undefined) return `${amountMinor} minor units`;
  const sign = amountMinor < 0n ? "-" : "";
  const digits = (amountMinor < 0n ? -amountMinor : amountMinor).toString();
  if (exponent === 0) return sign + digits;
  const padded = digits.padStart(exponent + 1, "0");
  return `${sign}${padded.slice(0, -exponent)}.${padded.slice(-exponent)}`;
}

/** @throws DomainError `currency_unknown` */
export function assertCurrency(value: unknown, path: string): void {
  exponentOf(value as string, path);
}

function exponentOf(currency: string, path: string): number {
  const exponent = CURRENCY_EXPONENTS.get(currency);
  if (exponent !== undefined) return exponent;
  throw new DomainError(
    "currency_unknown",
    `${path}: expected a current ISO 4217 code that has a minor unit, such as EUR, found ${shown(currency)}`,
    { details: { path: "currency" } },
  );
}

const MAJOR_PATTERN = /^(0|[1-9][0-9]*)(?:\.([0-9]+))?$/;

function parseMajor(
  amount: unknown,
  { currency, exponent, prefix }: { currency: string; exponent: number; prefix: string },
): bigint {
  const match = typeof amount === "string" ? MAJOR_PATTERN.exec(amount) : null;
  const fraction = match?.[2] ?? "";
  if (match === null || fraction.length > exponent) {
    const decimals = exponent === 0 ? "no decimals" : `at most ${exponent} decimals`;
    throw amountInvalid(
      `${prefix}amount: expected a positive decimal with ${decimals} in ${currency}, found ${shown(amount)}`,
      "amount",
    );
  }
  return checkRange(`${match[1] ?? ""}${fraction.padEnd(exponent, "0")}`, `${prefix}amount`);
}

const MINOR_PATTERN = /^[1-9][0-9]*$/;

function parseMinor(amountMinor: unknown, prefix: string): bigint {
  if (typeof amountMinor !== "string" || !MINOR_PATTERN.test(amountMinor)) {
    throw amountInvalid(
      `${prefix}amountMinor: expected a string of digits without a leading zero, found ${shown(amountMinor)}`,
      "amountMinor",
    );
  }
  return checkRange(amountMinor, `${prefix}amountMinor`);
}

function checkRange(digits: string, path: string): bigint {
  const significant = digits.replace(/^0+/, "");
  const field = path.split(" ").at(-1) ?? path;
  if (significant === "") throw amountInvalid(`${path}: expected more than 0`, field);
  // By length first: BigInt of a megabyte of digits would cost seconds.
  if (significant.length > 18) {
    throw new DomainError(
      "amount_too_large",
      `${path}: expected at most ${AMOUNT_MINOR_MAX} minor units, found ${significant.length} digits`,
      { details: { path: field } },
    );
  }
  return BigInt(significant);
}

function amountInvalid(message: string, path: string): DomainError {
  return new DomainError("amount_invalid", message, { details: { path } });
}

/** Shortened, so that a megabyte of input isn't repeated in the answer. */
function shown(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = typeof value === "bigint" ? `${value}n` : (JSON.stringify(value) ?? typeof value);
  return text.length <= 60 ? text : `${text.slice(0, 57)}…`;
}
