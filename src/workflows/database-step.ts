import {
  ActivityFailure,
  ApplicationFailure,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
} from "@temporalio/workflow";
import { LOCAL_DATABASE_STEP, REMOTE_DATABASE_STEP } from "./activity-options.ts";

type Activity<Input, Output> = (input: Input) => Promise<Output>;
type Activities<Input, Output> = Record<string, Activity<Input, Output>>;

/**
 * Makes one database step of an activity: local first, and the same activity as a remote one where that did not get
 * through. Run twice it is harmless, since every activity behind it is idempotent. A failure that retrying can't help
 * passes; `summary` names the step in the Web UI.
 */
export function databaseStep<Input, Output>(
  name: string,
  summary: string,
): Activity<Input, Output> {
  const local = proxyLocalActivities<Activities<Input, Output>>({
    ...LOCAL_DATABASE_STEP,
    summary,
  })[name];
  const remote = remoteStep<Input, Output>(name, summary);
  return async (input) => {
    if (local === undefined) throw new Error(`no activity ${name}`);
    try {
      return await local(input);
    } catch (error) {
      if (isCancellation(error) || isFinal(error)) throw error;
      return await remote(input);
    }
  };
}

/**
 * The same as a remote activity from the start, for what handlers and the main function of one run may ask at once: two
 * local activities that end in one workflow task replay in another order (temporalio/sdk-python#1578), and with updates
 * arriving meanwhile the SDK lost a run for ever (fifty captures at once, a test of ours).
 */
export function remoteStep<Input, Output>(name: string, summary: string): Activity<Input, Output> {
  const remote = proxyActivities<Activities<Input, Output>>({ ...REMOTE_DATABASE_STEP, summary })[
    name
  ];
  if (remote === undefined) throw new Error(`no activity ${name}`);
  return remote;
}

function isFinal(error: unknown): boolean {
  return (
    error instanceof ActivityFailure &&
    error.cause instanceof ApplicationFailure &&
    error.cause.nonRetryable === true
  );
}
