/**
 * Every foreseen refusal of Remit: its stable code, the exit code of the command line, and what helps.
 * Exit codes: 2 input, 3 not found, 4 refused in this state, 5 a dependency is away, 6 a check failed, 7 no answer in time.
 */
export const ERROR_CODES = {
  internal: { exit: 1, retryable: true, title: "Something that Remit did not foresee" },

  amount_invalid: { exit: 2, retryable: false, title: "The amount is not a positive number" },
  amount_too_large: { exit: 2, retryable: false, title: "The amount has more than 18 digits" },
  currency_unknown: { exit: 2, retryable: false, title: "The currency is not in ISO 4217" },
  same_account: { exit: 2, retryable: false, title: "Source and destination are one account" },
  key_invalid: { exit: 2, retryable: false, title: "The idempotency key is malformed" },
  merchant_invalid: { exit: 2, retryable: false, title: "The merchant is malformed" },
  account_invalid: { exit: 2, retryable: false, title: "The account id is malformed" },
  text_invalid: { exit: 2, retryable: false, title: "The text holds what a queue refuses" },
  file_invalid: { exit: 2, retryable: false, title: "The file can't be read as payments" },
  usage: { exit: 2, retryable: false, title: "The command was not understood" },

  account_not_found: { exit: 3, retryable: false, title: "No such account" },
  payment_not_found: { exit: 3, retryable: false, title: "No such payment" },
  finding_not_found: { exit: 3, retryable: false, title: "No such finding of a reconciliation" },
  message_not_found: { exit: 3, retryable: false, title: "No such message in the outbox" },

  insufficient_funds: { exit: 4, retryable: false, title: "The source has too little available" },
  balance_overflow: { exit: 4, retryable: false, title: "The balance would leave its range" },
  account_frozen: { exit: 4, retryable: false, title: "The account is frozen" },
  account_closed: { exit: 4, retryable: false, title: "The account is closed" },
  account_not_empty: { exit: 4, retryable: false, title: "The account still has money or holds" },
  account_exists: { exit: 4, retryable: false, title: "The account exists with other properties" },
  currency_mismatch: { exit: 4, retryable: false, title: "The account holds another currency" },
  idempotency_key_reused: {
    exit: 4,
    retryable: false,
    title: "The key was used with other parameters",
  },
  payment_not_capturable: { exit: 4, retryable: false, title: "The payment can't be captured" },
  payment_not_voidable: { exit: 4, retryable: false, title: "The payment can't be voided" },
  payment_not_cancellable: { exit: 4, retryable: false, title: "The payment can't be cancelled" },
  payment_not_refundable: { exit: 4, retryable: false, title: "The payment can't be refunded" },
  capture_exceeds_authorized: {
    exit: 4,
    retryable: false,
    title: "More than what is left of the authorization",
  },
  capture_in_progress: { exit: 4, retryable: false, title: "Another capture is not booked yet" },
  refund_exceeds_captured: { exit: 4, retryable: false, title: "More than what was captured" },
  message_not_retryable: { exit: 4, retryable: false, title: "The message can't be retried" },
  message_not_skippable: { exit: 4, retryable: false, title: "The message can't be skipped" },
  message_not_republishable: {
    exit: 4,
    retryable: false,
    title: "The message can't be sent again",
  },
  finding_not_acknowledgeable: {
    exit: 4,
    retryable: false,
    title: "The finding is over, or was acknowledged before",
  },
  message_skipped: {
    exit: 4,
    retryable: false,
    title: "An operator skipped the event that it waited for",
  },
  already_running: { exit: 4, retryable: false, title: "It runs already" },
  payment_failed: { exit: 4, retryable: false, title: "The payment ended without moving money" },

  database_unreachable: { exit: 5, retryable: true, title: "PostgreSQL does not answer" },
  temporal_unreachable: { exit: 5, retryable: true, title: "Temporal does not answer" },
  broker_unreachable: { exit: 5, retryable: true, title: "SNS or SQS does not answer" },

  verify: { exit: 6, retryable: false, title: "An invariant is broken" },
  doctor: { exit: 6, retryable: false, title: "A check of the installation failed" },

  wait_timeout: { exit: 7, retryable: true, title: "No end within the waiting time" },
  outcome_unknown: {
    exit: 7,
    retryable: true,
    title: "No worker answered: repeat with the same key",
  },
} as const satisfies Record<string, { exit: number; retryable: boolean; title: string }>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** A refusal that was foreseen. `message` says what was expected, what was found, which id; `details` is safe to show. */
export class DomainError extends Error {
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(
    code: ErrorCode,
    message: string,
    options: { details?: Record<string, unknown>; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = "DomainError";
    this.code = code;
    this.details = options.details ?? {};
  }
}

/** Narrows a string that came over a wire (a failure type, a column) to a code of the closed list. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === "string" && Object.hasOwn(ERROR_CODES, value);
}
