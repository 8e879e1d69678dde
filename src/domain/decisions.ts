import type { ErrorCode } from "./errors.ts";
import { formatMajor } from "./money.ts";
import type { CaptureMode, PaymentParameters, PaymentStatus } from "./payment.ts";

/** An account as a decision needs it; amounts in minor units. */
export interface AccountState {
  readonly accountId: string;
  readonly kind: string;
  readonly currency: string;
  readonly status: string;
  readonly posted: bigint;
  readonly held: bigint;
  readonly overdraft: bigint;
}

/** A payment as a decision needs it, read under its row lock. */
export interface PaymentState {
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly source: string;
  readonly destination: string;
  readonly amount: bigint;
  readonly currency: string;
  readonly capture: CaptureMode;
  readonly status: PaymentStatus;
  /** What its captures and refunds take together, booked or on their way. */
  readonly captured: bigint;
  readonly refunded: bigint;
  /** Where capture is manual. */
  readonly expiresAt: Date | null;
  readonly version: number;
}

export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Balances stay this far from the ends of bigint; the accounts_posted_range_check constraint says the same. */
const BALANCE_MAX = 4_000_000_000_000_000_000n;

/** Whether a payment may be accepted: null, or why not. The source is read under its lock, the destination without. */
export function refuseAcceptance(
  parameters: PaymentParameters,
  { source, destination }: { source: AccountState | null; destination: AccountState | null },
): Refusal | null {
  if (source === null) return notFound(parameters.source);
  if (destination === null) return notFound(parameters.destination);
  for (const account of [source, destination]) {
    if (account.currency !== parameters.currency) {
      return {
        code: "currency_mismatch",
        message: `account ${account.accountId} holds ${account.currency}, the payment is in ${parameters.currency}`,
      };
    }
  }
  return refuseMove({ source, destination, amount: BigInt(parameters.amountMinor) });
}

/** Whether `source` may give the amount to `destination` now. */
export function refuseMove({
  source,
  destination,
  amount,
}: {
  source: AccountState;
  destination: AccountState;
  amount: bigint;
}): Refusal | null {
  if (source.status === "frozen") {
    return { code: "account_frozen", message: `account ${source.accountId} is frozen` };
  }
  const closed = [source, destination].find(({ status }) => status === "closed");
  if (closed !== undefined) return isClosed(closed);
  const available = source.posted - source.held + source.overdraft;
  if (source.kind !== "world" && available < amount) {
    return {
      code: "insufficient_funds",
      message: `account ${source.accountId} has ${formatMajor(available, source.currency)} ${source.currency} available, ${formatMajor(amount, source.currency)} are asked for`,
    };
  }
  return leavesRange({ source, destination, amount });
}

/** Whether the ledger may move money between two accounts: null, or why not. A frozen account still books what was accepted. */
export function refuseBooking({
  debited,
  credited,
  amount,
}: {
  debited: AccountState;
  credited: AccountState;
  amount: bigint;
}): Refusal | null {
  if (credited.status === "closed") return isClosed(credited);
  return leavesRange({ source: debited, destination: credited, amount });
}

function leavesRange({
  source,
  destination,
  amount,
}: {
  source: AccountState;
  destination: AccountState;
  amount: bigint;
}): Refusal | null {
  const outOfRange =
    destination.posted + amount > BALANCE_MAX
      ? destination
      : source.posted - amount < -BALANCE_MAX || source.held + amount > BALANCE_MAX
        ? source
        : null;
  if (outOfRange === null) return null;
  return {
    code: "balance_overflow",
    message: `the balance of account ${outOfRange.accountId} would leave its range`,
  };
}

function notFound(accountId: string): Refusal {
  return { code: "account_not_found", message: `there is no account ${accountId}` };
}

function isClosed({ accountId }: AccountState): Refusal {
  return { code: "account_closed", message: `account ${accountId} is closed` };
}
