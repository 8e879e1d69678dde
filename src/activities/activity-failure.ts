import { ApplicationFailure } from "@temporalio/common";
import { DatabaseError } from "../database/database-error.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";

/**
 * SQLSTATE classes that come again however often one tries: data that no column takes. A missing column, a missing right
 * or a broken rule can be mended while the step waits, and a failed workflow would leave its payment behind.
 */
const RETRYING_CANNOT_HELP = /^(22|54)/;

/** The one place where an error turns into what Temporal keeps: no driver message, no bound parameter. */
export function toActivityFailure(error: unknown): Error {
  if (error instanceof DomainError) {
    const { code, message } = error;
    return ApplicationFailure.create({
      type: code,
      message,
      nonRetryable: !ERROR_CODES[code].retryable,
    });
  }
  if (error instanceof DatabaseError) {
    return ApplicationFailure.create({
      type: "DATABASE",
      message: error.message,
      nonRetryable: RETRYING_CANNOT_HELP.test(error.sqlState),
    });
  }
  return ApplicationFailure.create({ type: "UNEXPECTED", message: "see the worker's log" });
}

/** Wraps every activity of a factory, so that none can let a raw error out; `report` gets what is hidden, with the activity's input. */
export function guardActivities<Activities extends object>(
  activities: Activities,
  report: (name: string, failed: { input: object; error: unknown }) => void,
): Activities {
  const guarded = Object.entries(activities).map(([name, run]) => [
    name,
    async (...args: unknown[]): Promise<unknown> => {
      try {
        return await (run as (...all: unknown[]) => Promise<unknown>)(...args);
      } catch (error) {
        const [input] = args;
        report(name, { input: typeof input === "object" && input !== null ? input : {}, error });
        throw toActivityFailure(error);
      }
    },
  ]);
  return Object.fromEntries(guarded) as Activities;
}
