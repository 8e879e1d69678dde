import {
  condition,
  defineSignal,
  defineUpdate,
  getExternalWorkflowHandle,
  proxyLocalActivities,
  setHandler,
} from "@temporalio/workflow";

/**
 * What Temporal alone costs for the shape of a payment: the least that any design with two workflows pays. Nothing of
 * Remit is in it.
 */
const { nothing } = proxyLocalActivities<{ nothing(): Promise<void> }>({
  startToCloseTimeout: "2 seconds",
});

export const accepted = defineUpdate<string, []>("accepted");
export const decided = defineSignal("decided");

/** Accepts by one no-op local activity, and waits for the second workflow's word where it is told to. */
export async function floorPayment({ waits }: { waits: boolean }): Promise<void> {
  let isRecorded = false;
  let isDecided = false;
  setHandler(decided, () => void (isDecided = true));
  setHandler(accepted, async () => {
    await condition(() => isRecorded);
    return "receipt";
  });
  await nothing();
  isRecorded = true;
  if (waits) await condition(() => isDecided);
}

/** Decides by one no-op local activity and tells the first. */
export async function floorDecision({ workflowId }: { workflowId: string }): Promise<void> {
  await nothing();
  await getExternalWorkflowHandle(workflowId).signal(decided);
}
