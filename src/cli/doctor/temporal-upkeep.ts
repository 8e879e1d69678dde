import { ScheduleNotFoundError, WorkflowNotFoundError } from "@temporalio/client";
import type { ScheduleDescription } from "@temporalio/client";
import type { SupervisionSummary } from "../../activities/supervise.ts";
import { scheduleIds } from "../../domain/ids.ts";
import { temporalCommand } from "./temporal-command.ts";
import type { TemporalContext } from "./temporal.ts";
import { fail, ok, warn } from "./check.ts";
import type { Check, Finding } from "./check.ts";

/** Whether what the Schedules start also does its work: one that starts it on time each minute says nothing of that. */
export const UPKEEP_CHECK: Check<TemporalContext> = {
  name: "temporal.upkeep",
  about: "the last runs of supervision and upkeep did their work, and left nothing out",
  judge: judgeUpkeep,
};

async function judgeUpkeep(context: TemporalContext): Promise<Finding> {
  const runs = (await Promise.all(Object.values(scheduleIds).map(lastEnded(context)))).flat();
  const [broken] = runs.filter(({ status }) => status !== "COMPLETED");
  if (broken !== undefined) {
    const { workflowId, scheduleId, status } = broken;
    const commands = [
      temporalCommand(context.settings, "workflow show", `--workflow-id ${workflowId}`),
      temporalCommand(context.settings, "schedule trigger", `--schedule-id ${scheduleId}`),
    ];
    return fail(
      `${workflowId} ended as ${status}`,
      `mend its failure, then run it again: ${commands.join("; ")}`,
    );
  }
  const [partial] = runs.filter(({ result }) => (result?.failed ?? 0) > 0);
  if (partial !== undefined) {
    const { failed, firstFailure } = partial.result ?? {};
    return warn(
      `${partial.workflowId} left out ${failed}: ${firstFailure}`,
      "mend what the reason names; the next run, within a minute, goes on there",
    );
  }
  return ok(runs.length === 0 ? "no run has ended yet" : `${runs.length} ended well`);
}

interface EndedRun {
  readonly scheduleId: string;
  readonly workflowId: string;
  readonly status: string;
  readonly result: Partial<Pick<SupervisionSummary, "failed" | "firstFailure">> | null;
}

/** The youngest of a Schedule's runs that has ended and that Temporal still keeps; none where the Schedule is new, or missing. */
function lastEnded({ client, ask }: TemporalContext): (scheduleId: string) => Promise<EndedRun[]> {
  return async (scheduleId) => {
    for (const { action } of await newestActions({ client, ask }, scheduleId)) {
      const { workflowId, firstExecutionRunId } = action.workflow;
      const handle = client.workflow.getHandle(workflowId, firstExecutionRunId);
      try {
        const { status } = await ask(async () => await handle.describe());
        if (status.name === "RUNNING") continue;
        const isDone = status.name === "COMPLETED";
        const result = isDone
          ? await ask(async () => (await handle.result()) as EndedRun["result"])
          : null;
        return [{ scheduleId, workflowId, status: status.name, result }];
      } catch (error) {
        if (!(error instanceof WorkflowNotFoundError)) throw error;
      }
    }
    return [];
  };
}

async function newestActions(
  { client, ask }: Pick<TemporalContext, "client" | "ask">,
  scheduleId: string,
): Promise<ScheduleDescription["info"]["recentActions"]> {
  try {
    const { info } = await ask(async () => await client.schedule.getHandle(scheduleId).describe());
    return info.recentActions.toReversed();
  } catch (error) {
    if (error instanceof ScheduleNotFoundError) return [];
    throw error;
  }
}
