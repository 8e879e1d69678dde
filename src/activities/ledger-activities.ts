import type { Database } from "../database/database.ts";
import type { OutboxNotifier } from "../database/outbox-wake-up.ts";
import { workflowIds } from "../domain/ids.ts";
import { isTerminal } from "../domain/payment.ts";
import type { LedgerDecision, LedgerEntryEnd, LedgerEntryInput } from "../workflows/messages.ts";
import { applyLedgerEntries } from "./apply-ledger-entries.ts";

export interface LedgerActivities {
  readonly applyLedgerEntries: (input: LedgerEntryInput) => Promise<LedgerEntryEnd>;
}

export interface LedgerDependencies {
  readonly database: Database;
  readonly notifier: OutboxNotifier;
  /** Hints to a payment's workflow; resolves also where it is gone. */
  readonly signalPayment: (workflowId: string, decision: LedgerDecision) => Promise<void>;
}

/**
 * Booking, then the hint. A crash between the two runs both again: the inbox answers with the decision and the hint is
 * sent once more. The hint goes out from here: a signal from workflow code costs five events more.
 */
export function createLedgerActivities({
  database,
  notifier,
  signalPayment,
}: LedgerDependencies): LedgerActivities {
  return {
    async applyLedgerEntries(input) {
      const { payment, ...end } = await applyLedgerEntries(database, input);
      notifier.notify();
      if (payment !== null && isTerminal(payment.status)) {
        const { merchant, idempotencyKey: key, status, failureCode } = payment;
        await signalPayment(workflowIds.payment({ merchant, key }), { status, failureCode });
      }
      return end;
    },
  };
}
