import {
  CancellationScope,
  allHandlersFinished,
  condition,
  continueAsNew,
  workflowInfo,
} from "@temporalio/workflow";
import type { PaymentReference } from "./messages.ts";

/**
 * Temporal takes 2,000 Updates a run: a client that repeats a refused request again and again would otherwise shut the
 * payment's run against all others. The server says so before.
 */
export function isRunFull(): boolean {
  return workflowInfo().continueAsNewSuggested;
}

/** The next run takes the payment up from PostgreSQL; who asks meanwhile is answered first. */
export async function goOnInAnotherRun({ paymentId }: PaymentReference): Promise<never> {
  return await CancellationScope.nonCancellable(async () => {
    await condition(allHandlersFinished);
    return await continueAsNew<(reference: PaymentReference) => Promise<unknown>>({ paymentId });
  });
}
