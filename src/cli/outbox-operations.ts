import type { Command } from "commander";
import { hintOf } from "../activities/ledger-activities.ts";
import { republishMessages, retryMessages, skipMessages } from "../activities/operate-outbox.ts";
import type {
  OperateInput,
  OperatedMessage,
  SkippedMessage,
} from "../activities/operate-outbox.ts";
import type { Settings } from "../config/settings.ts";
import { deadMessageIds } from "../database/outbox-change-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { createSnsClient } from "../messaging/aws-clients.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { ledgerDecisionSignal } from "../workflows/messages.ts";
import { contextOf, withDatabase, withTemporal } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { operationBy, withOperation } from "./operator.ts";
import { addCommand, assertUuids } from "./options.ts";

/** `remit outbox retry|skip|republish`: what a person does to events, with a record of who and why. */
export function registerOutboxOperations(outbox: Command): void {
  registerRetry(outbox);
  registerSkip(outbox);
  registerRepublish(outbox);
}

interface OperateOptions {
  readonly reason?: string;
  readonly dryRun?: boolean;
}

interface RetryOptions extends OperateOptions {
  readonly all?: boolean;
  readonly type?: string;
}

/** One transaction takes so many; more are retried by the next call. */
const RETRY_ALL_MAX = 10_000;

function registerRetry(outbox: Command): void {
  withOperation(
    addCommand(outbox, {
      name: "retry [ids...]",
      about:
        "send dead or deferred events again from the first attempt on, once their cause is mended",
      examples: [
        "remit outbox retry 0193a1f2-… --reason 'topic policy mended'",
        "remit outbox retry --all --type payment.created --dry-run",
      ],
    }),
  )
    .option("--all", "every dead event")
    .option("--type <type>", "with --all: only events of this type")
    .action(async (ids: string[], options: RetryOptions, command: Command) => {
      const context = contextOf(command);
      const isAll = options.all === true;
      if (isAll === ids.length > 0 || (options.type !== undefined && !isAll)) {
        throw new DomainError(
          "usage",
          "expected ids of messages, or --all (with --type, if wanted)",
        );
      }
      const input = operateInput(ids, { ...options, reason: options.reason ?? "not said" });
      await withDatabase(context.settings(["database"]), async (database) => {
        const messageIds = isAll
          ? await deadMessageIds(database, { type: options.type ?? null, limit: RETRY_ALL_MAX })
          : input.messageIds;
        const messages = await retryMessages(database, { ...input, messageIds });
        printOperated(context, input, messages);
      });
    });
}

function registerSkip(outbox: Command): void {
  withOperation(
    addCommand(outbox, {
      name: "skip <ids...>",
      about:
        "never send these events: their followers go on, and a payment, capture or refund that waits for one ends without money moved",
      examples: ["remit outbox skip 0193a1f2-… --reason 'too big for SNS, told by phone'"],
    }),
  ).action(async (ids: string[], options: OperateOptions, command: Command) => {
    const context = contextOf(command);
    const input = operateInput(ids, options);
    const settings = context.settings(["database"]);
    const messages = await withDatabase(
      settings,
      async (database) => await skipMessages(database, input),
    );
    const isTold = input.isDryRun || (await tellWorkflows(settings, messages));
    printOperated(context, input, messages, {
      endOf: ({ applied }) => (applied === null ? null : endText(applied)),
      note: isTold ? null : "Temporal doesn't answer: the supervisor tells the workflows later",
    });
  });
}

/** False where Temporal is away: the supervisor tells them later. */
async function tellWorkflows(
  settings: Settings,
  messages: readonly SkippedMessage[],
): Promise<boolean> {
  const hints = messages.flatMap(({ applied, messageId }) =>
    applied === null ? [] : (hintOf(applied, messageId) ?? []),
  );
  if (hints.length === 0) return true;
  try {
    await withTemporal(settings, async ({ client }) => {
      for (const { workflowId, decision } of hints) {
        const handle = client.workflow.getHandle(workflowId);
        // Gone is fine: nobody waits any more.
        await handle.signal(ledgerDecisionSignal, decision).catch(() => undefined);
      }
    });
    return true;
  } catch {
    return false;
  }
}

function endText({
  paymentId,
  payment,
  refund,
  error,
  repeated,
}: NonNullable<SkippedMessage["applied"]>): string {
  const end = refund === undefined ? payment?.status : refund.status;
  const what =
    refund === undefined ? `payment ${paymentId ?? "unknown"}` : `refund of payment ${paymentId}`;
  return repeated
    ? `the ledger had decided it before (${error ?? "booked"})`
    : `${what} is ${end ?? "as it was"} (${error ?? "booked"})`;
}

function registerRepublish(outbox: Command): void {
  withOperation(
    addCommand(outbox, {
      name: "republish <ids...>",
      about: "send published events once more under their own ids, for a consumer that lost them",
      examples: ["remit outbox republish 0193a1f2-… --reason 'search index rebuilt'"],
    }),
  ).action(async (ids: string[], options: OperateOptions, command: Command) => {
    const context = contextOf(command);
    const input = operateInput(ids, options);
    const settings = context.settings(["database", "broker"]);
    const sns = createSnsClient(settings.aws, { requestTimeoutMs: settings.worker.sendTimeoutMs });
    try {
      const publisher = createSnsPublisher(sns, settings.topicArn);
      const messages = await withDatabase(
        settings,
        async (database) => await republishMessages({ database, publisher }, input),
      );
      printOperated(context, input, messages, {
        endOf: ({ brokerMessageId }) =>
          brokerMessageId === null ? null : `SNS ${brokerMessageId}`,
      });
    } finally {
      sns.destroy();
    }
  });
}

/** @throws DomainError `usage` for an id that is none, or without a reason outside of a dry run */
function operateInput(ids: readonly string[], options: OperateOptions): OperateInput {
  assertUuids(ids, "messages");
  return { messageIds: [...new Set(ids)], ...operationBy(options) };
}

function printOperated<Message extends OperatedMessage>(
  context: CommandContext,
  { isDryRun }: OperateInput,
  messages: readonly Message[],
  {
    endOf = () => null,
    note = null,
  }: { endOf?: (message: Message) => string | null; note?: string | null } = {},
): void {
  const lines = messages.map((message) => {
    const { messageId, type, from, to } = message;
    const end = endOf(message);
    const change = from === to ? to : `${from} → ${to}`;
    return `${messageId}  ${change}  ${type}${end === null ? "" : `: ${end}`}`;
  });
  const title = isDryRun ? "dry run, nothing was changed:" : null;
  const text = [title, ...lines, messages.length === 0 ? "no such events" : null, note];
  context.print({
    json: { isDryRun, messages },
    text: text.filter((line) => line !== null).join("\n"),
  });
}
