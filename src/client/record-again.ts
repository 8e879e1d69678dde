import { setTimeout as sleep } from "node:timers/promises";
import { WorkflowNotFoundError } from "@temporalio/client";
import type { WorkflowHandle } from "@temporalio/client";
import { DomainError } from "../domain/errors.ts";
import { ledgerDecisionSignal } from "../workflows/messages.ts";
import type { LedgerDecision, PaymentReceipt } from "../workflows/messages.ts";

/** Whether PostgreSQL has a payment, for who can ask it; true where it doesn't answer. */
export type IsRecorded = (paymentId: string) => Promise<boolean>;

export interface RecordAgainInput {
  /** The run that answered; also the one that takes its place. */
  readonly handle: Pick<WorkflowHandle, "signal">;
  /** Starts a run of the same payment unless one runs. */
  readonly start: () => Promise<void>;
  /** What the newest run answers. */
  readonly accept: () => Promise<PaymentReceipt>;
  readonly isRecorded: IsRecorded;
  readonly timeoutMs: number;
}

/**
 * Has a payment recorded again that Temporal answers for and PostgreSQL has forgotten (a failover, a restore), under the
 * id that its callers know: the run that remembers it is told to look and fails, the next one records. Run twice or by
 * two, one run records.
 * @throws DomainError `outcome_unknown` where the payment isn't there in time
 */
export async function recordAgain(input: RecordAgainInput): Promise<PaymentReceipt> {
  const { handle, start, accept, isRecorded, timeoutMs } = input;
  const endsAt = Date.now() + timeoutMs;
  await tellToLook(handle);
  for (;;) {
    await start();
    const receipt = await accept();
    if (await isRecorded(receipt.paymentId)) return receipt;
    if (Date.now() >= endsAt) throw forgottenPayment(receipt.paymentId);
    await sleep(LOOK_PAUSE_MS);
  }
}

/** Where Temporal and PostgreSQL contradict each other, no success is told. */
export function forgottenPayment(paymentId: string): DomainError {
  return new DomainError(
    "outcome_unknown",
    `Temporal answers for payment ${paymentId}, which PostgreSQL doesn't have: a failover or a restore has forgotten it, ` +
      "or DATABASE_URL isn't the workers'; a repeat with the same key records it again",
    { details: { paymentId } },
  );
}

const LOOK_PAUSE_MS = 250;
/** Without the message's id no run believes it, and each looks for itself. */
const LOOK: LedgerDecision = { status: "failed", failureCode: null, messageId: null };

async function tellToLook(handle: RecordAgainInput["handle"]): Promise<void> {
  try {
    await handle.signal(ledgerDecisionSignal, LOOK);
  } catch (error) {
    // It has ended: what it remembers is repeated all the same.
    if (!(error instanceof WorkflowNotFoundError)) throw error;
  }
}
