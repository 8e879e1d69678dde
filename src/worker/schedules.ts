import { ScheduleAlreadyRunning, ScheduleOverlapPolicy } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { scheduleIds, workflowIds } from "../domain/ids.ts";
import { TASK_QUEUES, WORKFLOW_TYPES } from "../workflows/messages.ts";

/** Creates what Temporal starts by the clock. A second call finds them there and leaves them as they are. */
export async function ensureSchedules(client: Client): Promise<void> {
  await ensureSchedule(client, {
    scheduleId: scheduleIds.supervisor,
    every: "1 minute",
    workflowType: WORKFLOW_TYPES.supervisor,
    workflowId: workflowIds.supervisor,
    taskQueue: TASK_QUEUES.payments,
  });
  await ensureSchedule(client, {
    scheduleId: scheduleIds.retention,
    every: "10 minutes",
    workflowType: WORKFLOW_TYPES.retention,
    workflowId: workflowIds.retention,
    taskQueue: TASK_QUEUES.ledger,
  });
}

async function ensureSchedule(
  client: Client,
  {
    scheduleId,
    every,
    ...workflow
  }: {
    scheduleId: string;
    every: "1 minute" | "10 minutes";
    workflowType: string;
    workflowId: string;
    taskQueue: string;
  },
): Promise<void> {
  try {
    await client.schedule.create({
      scheduleId,
      spec: { intervals: [{ every }] },
      action: { type: "startWorkflow", ...workflow, args: [] },
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: "1 minute" },
    });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
  }
}
