import { parseDuration } from "../domain/duration.ts";
import { DomainError } from "../domain/errors.ts";
import type { ErrorCode } from "../domain/errors.ts";
import {
  assertAccountId,
  assertIdempotencyKey,
  assertMerchant,
  DEFAULT_MERCHANT,
} from "../domain/ids.ts";
import { parseAmount } from "../domain/money.ts";
import { CAPTURE_MODES, EXPIRES_SECONDS } from "../domain/payment.ts";
import type { CaptureMode, PaymentParameters } from "../domain/payment.ts";
import { assertText } from "../domain/text.ts";

/** A request to pay, as a person writes it; exactly one of `amount` and `amountMinor`. */
export interface PaymentRequest {
  readonly key: string;
  readonly merchant?: string | undefined;
  readonly from: string;
  readonly to: string;
  readonly amount?: string | undefined;
  readonly amountMinor?: string | undefined;
  readonly currency: string;
  readonly description?: string | null | undefined;
  readonly capture?: CaptureMode | undefined;
  /** With manual capture: "7d", "12h", "90s"; 7 days unless said. */
  readonly expires?: string | undefined;
}

/** The fields of a request, which are the columns of a payments file. */
export const REQUEST_FIELDS = [
  "key",
  "merchant",
  "from",
  "to",
  "amount",
  "amountMinor",
  "currency",
  "description",
  "capture",
  "expires",
] as const satisfies readonly (keyof PaymentRequest)[];

/**
 * Checks a request by its shape alone; whoever passes is recorded or refused by the database. `path` (such as "line 7")
 * stands before each field's name in messages, and the field's name in `details.path`.
 * @throws DomainError with one of the codes of exit 2
 */
export function parsePaymentRequest(input: unknown, path?: string): PaymentParameters {
  if (typeof input !== "object" || input === null || Array.isArray(input)) {
    throw new DomainError(
      "usage",
      `${path ?? "request"}: expected an object with key, from, to and more`,
    );
  }
  const reader = new RequestReader(input as Record<string, unknown>, path);
  const idempotencyKey = reader.checked("key", "key_invalid", assertIdempotencyKey);
  const merchant = reader.has("merchant")
    ? reader.checked("merchant", "merchant_invalid", assertMerchant)
    : DEFAULT_MERCHANT;
  const source = reader.checked("from", "account_invalid", assertAccountId);
  const destination = reader.checked("to", "account_invalid", assertAccountId);
  const currency = reader.checked("currency", "currency_unknown", () => undefined);
  const amountMinor = parseAmount({
    amount: reader.raw("amount"),
    amountMinor: reader.raw("amountMinor"),
    currency,
    ...(path === undefined ? {} : { path }),
  });
  if (source === destination) {
    throw reader.wrong("to", "same_account", `another account than ${JSON.stringify(source)}`);
  }
  return {
    merchant,
    idempotencyKey,
    source,
    destination,
    amountMinor: amountMinor.toString(),
    currency,
    ...parseCapture(reader),
    description: reader.has("description")
      ? reader.checked("description", "text_invalid", assertText)
      : null,
  };
}

function parseCapture(
  reader: RequestReader,
): Pick<PaymentParameters, "capture" | "expiresInSeconds"> {
  const asked = reader.raw("capture") ?? "automatic";
  const capture = CAPTURE_MODES.find((mode) => mode === asked);
  if (capture === undefined) throw reader.wrong("capture", "usage", CAPTURE_MODES.join(" or "));
  if (capture === "automatic") {
    if (!reader.has("expires")) return { capture };
    throw reader.wrong("expires", "usage", "none: only an authorization (capture manual) expires");
  }
  const { fallback, min, max } = EXPIRES_SECONDS;
  if (!reader.has("expires")) return { capture, expiresInSeconds: fallback };
  const text = reader.raw("expires");
  const seconds = typeof text === "string" ? (parseDuration(text) ?? 0) / 1_000 : 0;
  if (!Number.isInteger(seconds) || seconds < min || seconds > max) {
    throw reader.wrong("expires", "usage", `from ${min}s to ${max / 86_400}d, such as 7d`);
  }
  return { capture, expiresInSeconds: seconds };
}

type RequestField = (typeof REQUEST_FIELDS)[number];

class RequestReader {
  readonly #input: Record<string, unknown>;
  readonly #prefix: string;

  constructor(input: Record<string, unknown>, path: string | undefined) {
    this.#input = input;
    this.#prefix = path === undefined ? "" : `${path}: `;
    const known: readonly string[] = REQUEST_FIELDS;
    const unknown = Object.keys(input).find((field) => !known.includes(field));
    // A misspelt field that is ignored in silence ("curency", "descripton") would pay something else than was meant.
    if (unknown !== undefined) {
      throw new DomainError(
        "usage",
        `${this.#prefix}expected the fields ${known.join(", ")}, found ${JSON.stringify(unknown)}`,
        { details: { path: unknown } },
      );
    }
  }

  /** `null` counts as absent. */
  raw(field: RequestField): unknown {
    return this.#input[field] ?? undefined;
  }

  has(field: RequestField): boolean {
    return this.raw(field) !== undefined;
  }

  checked(
    field: RequestField,
    code: ErrorCode,
    assertValue: (value: string, path: string) => void,
  ): string {
    const value = this.raw(field);
    if (typeof value !== "string") throw this.wrong(field, code, "a string");
    try {
      assertValue(value, this.#prefix + field);
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      throw new DomainError(error.code, error.message, { details: { path: field }, cause: error });
    }
    return value;
  }

  wrong(field: RequestField, code: ErrorCode, expected: string): DomainError {
    const value = this.raw(field);
    const found = value === undefined ? "nothing" : JSON.stringify(value).slice(0, 60);
    return new DomainError(code, `${this.#prefix}${field}: expected ${expected}, found ${found}`, {
      details: { path: field },
    });
  }
}
