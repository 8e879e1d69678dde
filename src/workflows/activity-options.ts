import type { ActivityOptions, LocalActivityOptions } from "@temporalio/workflow";

/**
 * A short transaction on our own database costs about half as a local activity. A few attempts within 5 s, no more: a
 * retrying local activity holds a workflow-task slot, grows the history and shows nowhere.
 */
export const LOCAL_DATABASE_STEP: LocalActivityOptions = {
  startToCloseTimeout: "2 seconds",
  scheduleToCloseTimeout: "5 seconds",
  localRetryThreshold: "1 second",
  retry: {
    initialInterval: "50 milliseconds",
    backoffCoefficient: 2,
    maximumInterval: "1 second",
    maximumAttempts: 4,
  },
};

/** The same step where the local one did not get through: retried for as long as the outage lasts, and shown. */
export const REMOTE_DATABASE_STEP: ActivityOptions = {
  startToCloseTimeout: "10 seconds",
  retry: { initialInterval: "1 second", backoffCoefficient: 2, maximumInterval: "10 seconds" },
};

/** A window of the relay: the worker that holds it must be heard every 5 s, or another one takes over. */
export const PUBLISH_WINDOW: ActivityOptions = {
  startToCloseTimeout: "5 minutes",
  heartbeatTimeout: "5 seconds",
  cancellationType: "WAIT_CANCELLATION_COMPLETED",
  retry: { initialInterval: "1 second", backoffCoefficient: 2, maximumInterval: "10 seconds" },
};

/** Minutes where much is old; the worker that purges must be heard meanwhile. */
export const RETENTION: ActivityOptions = {
  startToCloseTimeout: "10 minutes",
  heartbeatTimeout: "30 seconds",
  retry: { initialInterval: "5 seconds", maximumInterval: "1 minute", maximumAttempts: 5 },
};

/** A full look takes minutes at millions of payments, hours at hundreds of millions. A failed one is soon followed by the next. */
export const RECONCILIATION: ActivityOptions = {
  startToCloseTimeout: "12 hours",
  heartbeatTimeout: "30 seconds",
  retry: { initialInterval: "10 seconds", maximumInterval: "5 minutes", maximumAttempts: 5 },
};

export const SUPERVISION: ActivityOptions = {
  startToCloseTimeout: "60 seconds",
  retry: { initialInterval: "1 second", maximumInterval: "10 seconds", maximumAttempts: 5 },
};
