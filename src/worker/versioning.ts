import type { WorkerOptions } from "@temporalio/worker";
import type { WorkerSettings } from "../config/worker-settings.ts";
import { TASK_QUEUES } from "../workflows/messages.ts";

/**
 * Under which version a worker takes tasks (Temporal's Worker Deployment Versioning); nothing without a build id. What is
 * short ends on the build that it began on. An authorization lives for days, so it goes over to the next build at
 * its next task, and a relay does when it continues as new.
 */
export function versioningOf(
  { buildId, deploymentName }: Pick<WorkerSettings, "buildId" | "deploymentName">,
  taskQueue: string,
): Pick<WorkerOptions, "workerDeploymentOptions"> {
  if (buildId === null) return {};
  return {
    workerDeploymentOptions: {
      useWorkerVersioning: true,
      version: { deploymentName, buildId },
      defaultVersioningBehavior:
        taskQueue === TASK_QUEUES.manualPayments ? "AUTO_UPGRADE" : "PINNED",
    },
  };
}
