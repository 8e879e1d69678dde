import { proxyActivities } from "@temporalio/workflow";
import type { RetentionSummary } from "../activities/retention.ts";
import { RETENTION } from "./activity-options.ts";

const { purge } = proxyActivities<{ purge(): Promise<RetentionSummary> }>(RETENTION);

/**
 * Started by a Schedule that never lets two overlap: takes out of outbox and inbox what is over and old. Run twice, the
 * second finds the rest, or nothing.
 */
export async function retention(): Promise<RetentionSummary> {
  return await purge();
}
