import type { Client, WorkflowHandle } from "@temporalio/client";

/** Gives a call its deadline. */
export type Bounded = <Result>(call: () => Promise<Result>) => Promise<Result>;

/** Gives each call of this client its deadline; calls that belong together have one each. */
export function boundedCalls(client: Client): Bounded {
  return async (call) => await client.connection.withDeadline(Date.now() + CALL_MS_MAX, call);
}

/** A call that takes longer is an outage; there is no deadline by default. */
const CALL_MS_MAX = 5_000;

/** Of which type a workflow is, and whose workers run it. */
export interface Place {
  readonly type: string;
  readonly taskQueue: string;
}

/** A run under one of Remit's ids that is to be of this type and on this task queue. */
export interface PlacedRun {
  readonly handle: WorkflowHandle;
  readonly place: Place;
}

/**
 * Why a run that occupies one of Remit's ids may be ended: nobody here would ever work on it, and since an id is Remit's
 * alone nothing else is lost. Null where it is ours.
 */
export function whyStranger(run: Place, { type, taskQueue }: Place): string | null {
  if (run.type === type && run.taskQueue === taskQueue) return null;
  return `expected ${type} on ${taskQueue}, found ${run.type} on ${run.taskQueue}: replaced by the supervisor`;
}

/** Starts a run, and once more where a stranger had its id, who is ended; answers what the last start did. */
export async function startReplacing<Result>(
  bounded: Bounded,
  { handle, place }: PlacedRun,
  start: () => Promise<Result>,
): Promise<Result> {
  const started = await bounded(start);
  const stranger = whyStranger(await bounded(async () => await handle.describe()), place);
  if (stranger === null) return started;
  await bounded(async () => await handle.terminate(stranger));
  return await bounded(start);
}
