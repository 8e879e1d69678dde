import type { Database } from "../database/database.ts";
import type { OutboxNotifier } from "../database/outbox-wake-up.ts";
import { workflowIds } from "../domain/ids.ts";
import { isTerminal } from "../domain/payment.ts";
import type { LedgerDecision, LedgerEntryEnd, LedgerEntryInput } from "../workflows/messages.ts";
import { applyLedgerEntries } from "./apply-ledger-entries.ts";
import type { AppliedMessage } from "./due-booking.ts";

export interface LedgerActivities {
  readonly applyLedgerEntries: (input: LedgerEntryInput) => Promise<LedgerEntryEnd>;
}

export interface LedgerDependencies {
  readonly database: Database;
  readonly notifier: OutboxNotifier;
  /** Hints to the workflow of a payment or refund; resolves also where it is gone. */
  readonly signalDecision: (workflowId: string, decision: LedgerDecision) => Promise<void>;
  /** Gets each decision once it is committed; must not throw. */
  readonly report: (messageId: string, applied: AppliedMessage) => void;
}

/**
 * Booking, then the hint. A crash between the two runs both again: the inbox answers with the decision and the hint is
 * sent once more. The hint goes out from here: a signal from workflow code costs five events more.
 */
export function createLedgerActivities({
  database,
  notifier,
  signalDecision,
  report,
}: LedgerDependencies): LedgerActivities {
  return {
    async applyLedgerEntries(input) {
      const applied = await applyLedgerEntries(database, input);
      notifier.notify();
      report(input.messageId, applied);
      const hint = hintOf(applied, input.messageId);
      if (hint !== null) await signalDecision(hint.workflowId, hint.decision);
      const { outcome, repeated, paymentId, transactionId, error } = applied;
      return { outcome, repeated, paymentId, transactionId, error };
    },
  };
}

/** Whom to tell of a decision, and what; null where nobody waits for it. */
export function hintOf(
  { payment, captureId, refund }: AppliedMessage,
  messageId: string,
): { workflowId: string; decision: LedgerDecision } | null {
  if (refund !== undefined) {
    const { merchant, idempotencyKey: key, status, failureCode } = refund;
    if (status === "pending") return null;
    return {
      workflowId: workflowIds.refund({ merchant, key }),
      decision: { status, failureCode, messageId },
    };
  }
  if (payment === null) return null;
  const { merchant, idempotencyKey: key, status, failureCode } = payment;
  if (captureId === undefined && !isTerminal(status)) return null;
  return {
    workflowId: workflowIds.payment({ merchant, key }),
    decision: { status, failureCode, messageId, ...(captureId === undefined ? {} : { captureId }) },
  };
}
