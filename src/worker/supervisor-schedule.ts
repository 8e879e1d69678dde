import { ScheduleAlreadyRunning, ScheduleOverlapPolicy } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { scheduleIds, workflowIds } from "../domain/ids.ts";
import { TASK_QUEUES, WORKFLOW_TYPES } from "../workflows/messages.ts";

/** Creates the Schedule that looks for missing workflows every minute. A second call finds it there. */
export async function ensureSupervisorSchedule(client: Client): Promise<void> {
  try {
    await client.schedule.create({
      scheduleId: scheduleIds.supervisor,
      spec: { intervals: [{ every: "1 minute" }] },
      action: {
        type: "startWorkflow",
        workflowType: WORKFLOW_TYPES.supervisor,
        workflowId: workflowIds.supervisor,
        taskQueue: TASK_QUEUES.payments,
        args: [],
      },
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: "1 minute" },
    });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
  }
}
