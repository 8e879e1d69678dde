import type { Command } from "commander";
import { discardLetters, peekLetters, redriveLetters } from "../activities/operate-dead-letters.ts";
import type { LetterFilter, LetterOperation } from "../activities/operate-dead-letters.ts";
import { DomainError } from "../domain/errors.ts";
import { createSnsClient } from "../messaging/aws-clients.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { contextOf } from "./context.ts";
import { CALL_MS_MAX, runLetters, withLetters } from "./dlq-run.ts";
import { operationBy, withOperation } from "./operator.ts";
import { addCommand, addGroup, assertUuids, integerBetween } from "./options.ts";

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
    const inHand = inFlight === 0 ? "" : `, ${inFlight} of them in hand`;
    const age =
      oldestAgeSeconds === null
        ? ""
        : `; the oldest of ${sampled} looked at came ${Math.round(oldestAgeSeconds)} s ago`;
    const next = visible === 0 ? "" : "\nnext: remit dlq peek";
    context.print({ json: status, text: `${visible} dead letters${inHand}${age}${next}` });
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
    const filter = filterOf(options);
    const settings = context.settings(["database", "broker"]);
    const { limit } = options;
    const messageIds = filter.messageIds ?? [];
    const run = { context, settings, verb: "peek", isDryRun: false, limit, messageIds } as const;
    await runLetters(run, async (dependencies) => await peekLetters(dependencies, filter));
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
        const run = { context, settings, verb: "redrive", ...boundsOf(options) } as const;
        await runLetters(run, async (dependencies) => {
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
    const run = { context, settings, verb: "discard", ...boundsOf(options) } as const;
    await runLetters(run, async (dependencies) => await discardLetters(dependencies, operation));
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

/** @throws DomainError `usage` for an id of an event that is none */
function filterOf(options: FilterOptions): LetterFilter {
  const { messageId, sqsMessageId, type, payment, malformed } = options;
  assertUuids(messageId ?? [], "messages");
  return {
    ...(messageId === undefined ? {} : { messageIds: messageId }),
    ...(sqsMessageId === undefined ? {} : { sqsMessageIds: sqsMessageId }),
    ...(type === undefined ? {} : { type }),
    ...(payment === undefined ? {} : { paymentId: payment }),
    ...(malformed === undefined ? {} : { malformed }),
  };
}

function boundsOf({ limit, dryRun, messageId }: OperationOptions): {
  limit: number;
  isDryRun: boolean;
  messageIds: readonly string[];
} {
  return { limit, isDryRun: dryRun === true, messageIds: messageId ?? [] };
}

/** @throws DomainError `usage` where neither a filter nor --all says which are meant, or no reason is given */
function operationOf(options: OperationOptions): LetterOperation {
  const filter = filterOf(options);
  const isFiltered = Object.keys(filter).length > 0;
  if (isFiltered === (options.all === true)) {
    throw new DomainError(
      "usage",
      "say which letters are meant: " +
        `a filter (--message-id, --type, --payment, --malformed …) or --all, ${isFiltered ? "not both" : "found neither"}`,
    );
  }
  return { filter, ...operationBy(options) };
}
