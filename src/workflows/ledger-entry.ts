import {
  ApplicationFailure,
  CancellationScope,
  setCurrentDetails,
  workflowInfo,
} from "@temporalio/workflow";
import { UUID_PATTERN, workflowIds } from "../domain/ids.ts";
import type { LedgerEntryEnd, LedgerEntryInput } from "./messages.ts";
import { databaseStep } from "./database-step.ts";

const applyLedgerEntries = databaseStep<LedgerEntryInput, LedgerEntryEnd>(
  "applyLedgerEntries",
  "inbox row + entries + settled payment + outbox row, in one commit",
);

/**
 * Books one message; its id is `ledger:<messageId>`, so a message delivered again meets a run that refuses to start.
 * Run twice it answers with the first decision: the inbox row stands in the transaction that booked.
 */
export async function ledgerEntry(input: LedgerEntryInput): Promise<LedgerEntryEnd> {
  // Started by hand under another message's id it would stand in that one's way: failed, it doesn't.
  const messageId: unknown = (input as LedgerEntryInput | null)?.messageId;
  const isSpelled = typeof messageId === "string" && UUID_PATTERN.test(messageId);
  if (!isSpelled || workflowInfo().workflowId !== workflowIds.ledgerEntry(messageId)) {
    throw ApplicationFailure.nonRetryable("the run's id is not ledger:<messageId>", "usage");
  }
  // A cancel from outside can't leave a message undecided: its payment would hold its money for ever.
  const decision = await CancellationScope.nonCancellable(
    async () => await applyLedgerEntries(input),
  );
  setCurrentDetails(sentence(decision));
  return decision;
}

function sentence({ outcome, paymentId, transactionId, error, repeated }: LedgerEntryEnd): string {
  const again = repeated ? " It had been decided before, so nothing was written again." : "";
  return outcome === "booked"
    ? `**Booked** payment \`${paymentId}\` as ledger transaction \`${transactionId}\`.${again}`
    : `**Refused** ${paymentId === null ? "a message of no known payment" : `payment \`${paymentId}\``} (\`${error}\`). No money moved.${again}`;
}
