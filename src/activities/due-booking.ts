import type { PartState } from "../database/ledger-queries.ts";
import type { AccountState, PaymentState } from "../domain/decisions.ts";
import type { PartStatus, PaymentStatus } from "../domain/payment.ts";
import type { LedgerEntryEnd } from "../workflows/messages.ts";

/** A message that is new, with what it is about under its locks. */
export interface Due {
  readonly messageId: string;
  readonly payment: PaymentState;
  readonly source: AccountState;
  readonly destination: AccountState;
  readonly now: Date;
}

/** The same of a capture or refund that is on its way. */
export interface DuePart extends Due {
  readonly part: PartState;
}

/** The decision about a message and how its payment stands, for the hint to the workflow that waits for it. */
export interface AppliedMessage extends LedgerEntryEnd {
  readonly payment: {
    readonly merchant: string;
    readonly idempotencyKey: string;
    readonly status: PaymentStatus;
    readonly failureCode: string | null;
  } | null;
  readonly captureId?: string;
  /** Of a refund: its own key and end. */
  readonly refund?: {
    readonly merchant: string;
    readonly idempotencyKey: string;
    readonly status: PartStatus;
    readonly failureCode: string | null;
  };
}
