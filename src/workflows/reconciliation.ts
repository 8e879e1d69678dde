import { proxyActivities } from "@temporalio/workflow";
import type { ReconcileInput, ReconcileSummary } from "../activities/reconcile.ts";
import { RECONCILIATION } from "./activity-options.ts";

const { reconcile } = proxyActivities<{
  reconcile(input: ReconcileInput): Promise<ReconcileSummary>;
}>(RECONCILIATION);

/**
 * Started by two Schedules that never let two of one overlap: every few minutes a look at what is recent, at night at
 * everything. It keeps what it finds and corrects nothing. Run twice, the second finds the same.
 */
export async function reconciliation(input: ReconcileInput): Promise<ReconcileSummary> {
  return await reconcile(input);
}
