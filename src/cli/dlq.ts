import type { Command } from "commander";
import { discardLetters, peekLetters, redriveLetters } from "../activities/operate-dead-letters.ts";
import type {
  LetterDependencies,
  LetterFilter,
  LetterOperation,
  LetterReport,
} from "../activities/operate-dead-letters.ts";
import type { Settings } from "../config/settings.ts";
import { DomainError } from "../domain/errors.ts";
import { createSnsClient, createSqsClient } from "../messaging/aws-clients.ts";
import { awsError } from "../messaging/aws-error.ts";
import { openDeadLetters } from "../messaging/dead-letters.ts";
import type { DeadLetters } from "../messaging/dead-letters.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { contextOf, withDatabase } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { operationBy, withOperation } from "./operator.ts";
import { addCommand, addGroup, integerBetween } from "./options.ts";

/** `remit dlq status|peek|redrive|discard`. */
export function registerDlq(program: Command): void {
  const dlq = addGroup(program, "dlq", "messages that the ledger's queue gave up");
  registerStatus(dlq);
  registerPeek(dlq);
  registerRedrive(dlq);
  registerDiscard(dlq);
}

function registerStatus(dlq: Command): void {
  addCommand(dlq, {
    name: "status",
    about: "how many there are, and how old the oldest of a sample is",
    examples: ["remit dlq status --json"],
  }).action(async (_options: unknown, command: Command) => {
    const context = contextOf(command);
    const status = await withLetters(
      context.settings(["broker"]),
      async (letters) => await letters.status(),
    );
    const { visible, inFlight, oldestAgeSeconds, sampled } = status;
    const age =
      oldestAgeSeconds === null
        ? ""
        : `, the oldest of ${sampled} looked at came ${Math.round(oldestAgeSeconds)} s ago`;
    context.print({ json: status, text: `${visible} dead letters, ${inFlight} in hand${age}` });
  });
}

interface FilterOptions {
  readonly messageId?: string[];
  readonly sqsMessageId?: string[];
  readonly type?: string;
  readonly payment?: string;
  readonly malformed?: boolean;
  readonly limit: number;
}

interface OperationOptions extends FilterOptions {
  readonly all?: boolean;
  readonly reason?: string;
  readonly dryRun?: boolean;
}

function registerPeek(dlq: Command): void {
  withFilter(
    addCommand(dlq, {
      name: "peek",
      about: "look at them, with what Remit knows of each and what to do; removes none",
      examples: ["remit dlq peek --limit 5", "remit dlq peek --malformed --json"],
    }),
    20,
  ).action(async (options: FilterOptions, command: Command) => {
    const context = contextOf(command);
    await run(context, context.settings(["database", "broker"]), false, async (dependencies) => {
      await peekLetters(dependencies, filterOf(options));
    });
  });
}

function registerRedrive(dlq: Command): void {
  withFilteredOperation(
    addCommand(dlq, {
      name: "redrive",
      about: "send them once more under their own ids; what is malformed or unknown is left",
      examples: [
        "remit dlq redrive --all --dry-run",
        "remit dlq redrive --type payment.created --rate 20 --reason 'ledger database is back'",
      ],
    }),
  )
    .option("--rate <n>", "messages a second at most", integerBetween(1, 1_000))
    .action(async (options: OperationOptions & { rate?: number }, command: Command) => {
      const context = contextOf(command);
      const operation = operationOf(options);
      const settings = context.settings(["database", "broker"]);
      const sns = createSnsClient(settings.aws, { requestTimeoutMs: CALL_MS_MAX });
      try {
        const publisher = createSnsPublisher(sns, settings.topicArn);
        await run(context, settings, operation.isDryRun, async (dependencies) => {
          await redriveLetters(
            { ...dependencies, publisher },
            { ...operation, perSecondMax: options.rate ?? null },
          );
        });
      } finally {
        sns.destroy();
      }
    });
}

function registerDiscard(dlq: Command): void {
  withFilteredOperation(
    addCommand(dlq, {
      name: "discard",
      about: "take them out of the queue; their whole text is kept with who and why",
      examples: ["remit dlq discard --malformed --reason 'sent by a test of the shop'"],
    }),
  ).action(async (options: OperationOptions, command: Command) => {
    const context = contextOf(command);
    const operation = operationOf(options);
    const settings = context.settings(["database", "broker"]);
    await run(context, settings, operation.isDryRun, async (dependencies) => {
      await discardLetters(dependencies, operation);
    });
  });
}

function withFilter(command: Command, limit: number): Command {
  return command
    .option("--message-id <ids...>", "only these events (CloudEvents ids)")
    .option("--sqs-message-id <ids...>", "only these letters (ids of SQS)")
    .option("--type <type>", "only events of this type")
    .option("--payment <id>", "only events of this payment")
    .option("--malformed", "only what is no event of ours by its shape")
    .option("--limit <n>", "at most so many", integerBetween(1, 100_000), limit);
}

function withFilteredOperation(command: Command): Command {
  return withOperation(withFilter(command, 1_000).option("--all", "every letter"));
}

function filterOf(options: FilterOptions): LetterFilter {
  const { messageId, sqsMessageId, type, payment, malformed, limit } = options;
  return {
    ...(messageId === undefined ? {} : { messageIds: messageId }),
    ...(sqsMessageId === undefined ? {} : { sqsMessageIds: sqsMessageId }),
    ...(type === undefined ? {} : { type }),
    ...(payment === undefined ? {} : { paymentId: payment }),
    ...(malformed === undefined ? {} : { malformed }),
    limit,
  };
}

/** @throws DomainError `usage` where neither a filter nor --all says which are meant, or no reason is given */
function operationOf(options: OperationOptions): LetterOperation {
  const { limit: _, ...said } = filterOf(options);
  const isFiltered = Object.keys(said).length > 0;
  if (isFiltered === (options.all === true)) {
    throw new DomainError("usage", "say which letters are meant: a filter, or --all");
  }
  return { filter: filterOf(options), ...operationBy(options) };
}

/** Prints what was done, also where it stopped in the middle. */
async function run(
  context: CommandContext,
  settings: Settings,
  isDryRun: boolean,
  work: (dependencies: LetterDependencies) => Promise<void>,
): Promise<void> {
  const reports: LetterReport[] = [];
  const onLetter = (report: LetterReport): void => void reports.push(report);
  try {
    await withLetters(
      settings,
      async (letters) =>
        await withDatabase(
          settings,
          async (database) => await work({ database, letters, onLetter }),
        ),
    );
  } catch (error) {
    if (!context.isJson) for (const report of reports) context.output.err(reportText(report));
    if (!(error instanceof DomainError)) throw error;
    const done = reports.filter((report) => report.done !== "left").length;
    throw new DomainError(error.code, `${error.message}; ${done} were done before it`, {
      cause: error,
      details: { letters: reports },
    });
  }
  const title = isDryRun ? ["dry run, nothing was changed:"] : [];
  const lines = reports.length === 0 ? ["no such letters"] : reports.map(reportText);
  context.print({ json: { isDryRun, letters: reports }, text: [...title, ...lines].join("\n") });
}

function reportText(report: LetterReport): string {
  const { messageId, sqsMessageId, type, done, advice, receiveCount, sentAt } = report;
  const what = `${messageId ?? `letter ${sqsMessageId}`}  ${type ?? "malformed"}`;
  const came = `sent ${sentAt.toISOString()}, received ${receiveCount} times`;
  return done === "left" ? `${what}, ${came}: ${advice}` : `${what}: ${done}`;
}

async function withLetters<Result>(
  settings: Settings,
  work: (letters: DeadLetters) => Promise<Result>,
): Promise<Result> {
  if (settings.ledgerDlqUrl === "") {
    throw new DomainError("usage", "REMIT_LEDGER_DLQ_URL is not set, so no queue is known");
  }
  const sqs = createSqsClient(settings.aws, { requestTimeoutMs: CALL_MS_MAX });
  try {
    return await work(openDeadLetters(sqs, settings.ledgerDlqUrl));
  } catch (error) {
    throw isFromAws(error) ? awsError(error, settings.aws) : error;
  } finally {
    sqs.destroy();
  }
}

function isFromAws(error: unknown): boolean {
  return (
    error instanceof Error && ("$metadata" in error || "$response" in error || "code" in error)
  );
}

const CALL_MS_MAX = 5_000;
