import type { PartState } from "../database/ledger-queries.ts";
import { refuseBooking } from "../domain/decisions.ts";
import type { AccountState, PaymentState, Refusal } from "../domain/decisions.ts";
import type { PartStatus, PaymentStatus } from "../domain/payment.ts";
import type { LedgerEntryEnd } from "../workflows/messages.ts";

/** A message that is new, with what it is about under its locks. */
export interface Due {
  readonly messageId: string;
  readonly payment: PaymentState;
  readonly source: AccountState;
  readonly destination: AccountState;
  readonly now: Date;
  /** Of the message: what follows from it belongs to the same trace. */
  readonly traceparent: string | null;
  /** Of a message that never reaches the ledger since an operator skipped it; null where the books decide. */
  readonly refusal: Refusal | null;
}

/** Why the ledger doesn't book it; null where it does. */
export function refusalOf(
  { refusal }: Due,
  posting: { debited: AccountState; credited: AccountState; amount: bigint },
): Refusal | null {
  return refusal ?? refuseBooking(posting);
}

/** What became of a message that was due; whoever received it knows its event. */
export type Applied = Omit<AppliedMessage, "event">;

/** The same of a capture or refund that is on its way. */
export interface DuePart extends Due {
  readonly part: PartState;
}

/** The decision about a message and how its payment stands, for the hint to the workflow that waits for it. */
export interface AppliedMessage extends LedgerEntryEnd {
  /** As the outbox has it, whatever the message said of itself; null where no event of ours has its id. */
  readonly event: { readonly type: string; readonly traceparent: string | null } | null;
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
