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

/**
 * Ends a run that occupies one of Remit's ids and isn't of its type and task queue, since nobody here would ever work on
 * it; answers whether it did. An id is Remit's alone, so nothing else is lost.
 */
export async function endStranger({
  bounded,
  handle,
  place,
}: {
  bounded: Bounded;
  handle: WorkflowHandle;
  place: Place;
}): Promise<boolean> {
  const { type, taskQueue } = await bounded(async () => await handle.describe());
  if (type === place.type && taskQueue === place.taskQueue) return false;
  const reason = `expected ${place.type} on ${place.taskQueue}, found ${type} on ${taskQueue}: replaced by the supervisor`;
  await bounded(async () => await handle.terminate(reason));
  return true;
}
