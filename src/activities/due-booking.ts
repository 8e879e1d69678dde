import type { PartState } from "../database/ledger-queries.ts";
import type { AccountState, PaymentState } from "../domain/decisions.ts";

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
