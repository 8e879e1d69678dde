import { proxyActivities, workflowInfo } from "@temporalio/workflow";
import type { SupervisionInput, SupervisionSummary } from "../activities/supervise.ts";
import { SUPERVISION } from "./activity-options.ts";

const { startMissing } = proxyActivities<{
  startMissing(input: SupervisionInput): Promise<SupervisionSummary>;
}>(SUPERVISION);

/**
 * Started by a Schedule, since a Schedule can't start a fixed workflow id: starts the relays that don't run, and gives
 * every payment and refund that isn't at its end a workflow again. Run twice, the second finds nothing missing; it goes on
 * where the one before it stopped looking.
 */
export async function supervisor(): Promise<SupervisionSummary> {
  const last = workflowInfo().lastResult as Partial<SupervisionSummary> | undefined;
  return await startMissing({
    ...(last?.after === undefined ? {} : { after: last.after }),
    ...(last?.dueAfter === undefined ? {} : { dueAfter: last.dueAfter }),
    ...(last?.refundsAfter === undefined ? {} : { refundsAfter: last.refundsAfter }),
    ...(typeof last?.shortRunsBefore === "string" ? { shortRunsBefore: last.shortRunsBefore } : {}),
    ...(typeof last?.manualRunsBefore === "string"
      ? { manualRunsBefore: last.manualRunsBefore }
      : {}),
  });
}
