import {
  ActivityFailure,
  ApplicationFailure,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
} from "@temporalio/workflow";
import { LOCAL_DATABASE_STEP, REMOTE_DATABASE_STEP } from "./activity-options.ts";

type Activity<Input, Output> = (input: Input) => Promise<Output>;

/**
 * Makes one database step of an activity: local first, and the same activity as a remote one where that did not get
 * through. Run twice it is harmless, since every activity behind it is idempotent. A failure that retrying can't help
 * passes; `summary` names the step in the Web UI.
 */
export function databaseStep<Input, Output>(
  name: string,
  summary: string,
): Activity<Input, Output> {
  type Activities = Record<string, Activity<Input, Output>>;
  const local = proxyLocalActivities<Activities>({ ...LOCAL_DATABASE_STEP, summary })[name];
  const remote = proxyActivities<Activities>({ ...REMOTE_DATABASE_STEP, summary })[name];
  return async (input) => {
    if (local === undefined || remote === undefined) throw new Error(`no activity ${name}`);
    try {
      return await local(input);
    } catch (error) {
      if (isCancellation(error) || isFinal(error)) throw error;
      return await remote(input);
    }
  };
}

function isFinal(error: unknown): boolean {
  return (
    error instanceof ActivityFailure &&
    error.cause instanceof ApplicationFailure &&
    error.cause.nonRetryable === true
  );
}
