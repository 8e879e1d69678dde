import { ScheduleAlreadyRunning, ScheduleOverlapPolicy } from "@temporalio/client";
import type { Client, ScheduleSpec } from "@temporalio/client";
import { scheduleIds, workflowIds } from "../domain/ids.ts";
import { TASK_QUEUES, WORKFLOW_TYPES } from "../workflows/messages.ts";

/** At an hour at which payments are few, in UTC. */
const NIGHT: ScheduleSpec = { calendars: [{ hour: 3, minute: 17 }] };

/** Creates what Temporal starts by the clock. A second call finds them there and leaves them as they are. */
export async function ensureSchedules(client: Client): Promise<void> {
  await ensureSchedule(client, {
    scheduleId: scheduleIds.supervisor,
    spec: { intervals: [{ every: "1 minute" }] },
    workflowType: WORKFLOW_TYPES.supervisor,
    workflowId: workflowIds.supervisor,
    taskQueue: TASK_QUEUES.payments,
  });
  await ensureSchedule(client, {
    scheduleId: scheduleIds.retention,
    spec: { intervals: [{ every: "10 minutes" }] },
    workflowType: WORKFLOW_TYPES.retention,
    workflowId: workflowIds.retention,
    taskQueue: TASK_QUEUES.ledger,
  });
  await ensureSchedule(client, {
    scheduleId: scheduleIds.reconciliationRecent,
    spec: { intervals: [{ every: "5 minutes" }] },
    workflowType: WORKFLOW_TYPES.reconciliation,
    workflowId: workflowIds.reconciliation("recent"),
    taskQueue: TASK_QUEUES.ledger,
    args: [{ scope: "recent" }],
  });
  await ensureSchedule(client, {
    scheduleId: scheduleIds.reconciliationFull,
    spec: NIGHT,
    workflowType: WORKFLOW_TYPES.reconciliation,
    workflowId: workflowIds.reconciliation("full"),
    taskQueue: TASK_QUEUES.ledger,
    args: [{ scope: "full" }],
  });
}

async function ensureSchedule(
  client: Client,
  {
    scheduleId,
    spec,
    args = [],
    ...workflow
  }: {
    scheduleId: string;
    spec: ScheduleSpec;
    workflowType: string;
    workflowId: string;
    taskQueue: string;
    args?: readonly unknown[];
  },
): Promise<void> {
  try {
    await client.schedule.create({
      scheduleId,
      spec,
      action: { type: "startWorkflow", ...workflow, args: [...args] },
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: "1 minute" },
    });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
  }
}
