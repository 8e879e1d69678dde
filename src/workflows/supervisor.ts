import { proxyActivities } from "@temporalio/workflow";
import type { SupervisionSummary } from "../activities/supervise.ts";
import { SUPERVISION } from "./activity-options.ts";

const { startMissing } = proxyActivities<{ startMissing(): Promise<SupervisionSummary> }>(
  SUPERVISION,
);

/**
 * Started by a Schedule, since a Schedule can't start a fixed workflow id: starts the relays that don't run, and gives
 * every payment that isn't at its end a workflow again. Run twice, the second finds nothing missing.
 */
export async function supervisor(): Promise<SupervisionSummary> {
  return await startMissing();
}
