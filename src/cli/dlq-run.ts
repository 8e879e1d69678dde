import type { LetterDependencies, LetterReport } from "../activities/operate-dead-letters.ts";
import { toDomainErrorOrInternal } from "../client/problem.ts";
import type { Settings } from "../config/settings.ts";
import { DomainError } from "../domain/errors.ts";
import { INTERRUPTED, interruptions } from "../local/interruption.ts";
import { createSqsClient } from "../messaging/aws-clients.ts";
import { awsError } from "../messaging/aws-error.ts";
import { openDeadLetters } from "../messaging/dead-letters.ts";
import type { DeadLetters } from "../messaging/dead-letters.ts";
import { withDatabase } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { isMeant, letterText, outcomeText, sumText } from "./dlq-text.ts";
import type { LetterRunEnd, LetterTask } from "./dlq-text.ts";

export interface LetterRun extends LetterTask {
  readonly context: CommandContext;
  readonly settings: Settings;
  /** Of the letters that are meant; those that are left on the way don't count. */
  readonly limit: number;
  /** Asked for by id: what of them isn't there is said. */
  readonly messageIds: readonly string[];
}

/** Longest that one call to SNS or SQS takes. */
export const CALL_MS_MAX = 5_000;

/** Goes through the queue and prints what was done, also where it stopped in the middle. A first Ctrl-C ends it after the letter in hand. */
export async function runLetters(
  run: LetterRun,
  work: (dependencies: LetterDependencies) => Promise<void>,
): Promise<void> {
  const { context, settings, verb, isDryRun } = run;
  const reports: LetterReport[] = [];
  let meant = 0;
  const onLetter = (report: LetterReport): void => {
    reports.push(report);
    if (isMeant(run, report)) meant += 1;
  };
  const interruption = interruptions();
  const ended: { why: LetterRunEnd } = { why: "exhausted" };
  const isOver = (): boolean => {
    if (interruption.signal.aborted) ended.why = "interrupted";
    else if (meant >= run.limit) ended.why = "limit";
    return ended.why !== "exhausted";
  };
  try {
    await withLetters(settings, async (queue) => {
      const letters = stoppable(queue, isOver);
      await withDatabase(settings, async (database) => await work({ database, letters, onLetter }));
    });
    const { why: end } = ended;
    const found = new Set(reports.map(({ messageId }) => messageId?.toLowerCase()));
    const missing = end === "exhausted" ? run.messageIds.filter((id) => !found.has(id)) : [];
    context.print({
      json: { isDryRun, end, letters: reports, missing },
      text: outcomeText({ verb, isDryRun, letters: reports, end, missing }),
    });
    if (end === "interrupted") process.exitCode = INTERRUPTED;
  } catch (error) {
    throw partial(error, run, reports);
  } finally {
    interruption.dispose();
  }
}

/** Asks before each letter whether it is the last moment to stop: then the letter, and all that is in hand, goes back. */
function stoppable(letters: DeadLetters, isOver: () => boolean): DeadLetters {
  return {
    ...letters,
    visit: async (visit) => {
      await letters.visit(async (letter) => (isOver() ? "enough" : await visit(letter)));
    },
  };
}

/** The failure, with what was done before it: in the text form above it, in JSON within its document. */
function partial(thrown: unknown, run: LetterRun, letters: readonly LetterReport[]): DomainError {
  const error = toDomainErrorOrInternal(thrown);
  const { context, isDryRun } = run;
  if (letters.length === 0) return error;
  if (!context.isJson) for (const letter of letters) context.output.err(letterText(run, letter));
  return new DomainError(error.code, `${error.message}; before it: ${sumText(run, letters)}`, {
    cause: error.cause,
    details: { ...error.details, isDryRun, letters },
  });
}

/** Runs with the dead-letter queue of the settings, and says in Remit's words what SQS refuses. */
export async function withLetters<Result>(
  { ledgerDlqUrl, aws }: Settings,
  work: (letters: DeadLetters) => Promise<Result>,
): Promise<Result> {
  if (ledgerDlqUrl === "") {
    throw new DomainError(
      "usage",
      "REMIT_LEDGER_DLQ_URL is not set, so no dead-letter queue is known (remit aws setup prints it)",
    );
  }
  const sqs = createSqsClient(aws, { requestTimeoutMs: CALL_MS_MAX });
  try {
    return await work(openDeadLetters(sqs, ledgerDlqUrl));
  } catch (error) {
    if (error instanceof Error && /QueueDoesNotExist|NonExistentQueue/.test(error.name)) {
      const message = `REMIT_LEDGER_DLQ_URL: expected a queue, found none at ${ledgerDlqUrl}`;
      throw new DomainError("usage", message, { cause: error });
    }
    throw isFromAws(error) ? awsError(error, aws) : error;
  } finally {
    sqs.destroy();
  }
}

function isFromAws(error: unknown): boolean {
  return (
    error instanceof Error && ("$metadata" in error || "$response" in error || "code" in error)
  );
}
