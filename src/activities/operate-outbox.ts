import { inTransaction } from "../database/database.ts";
import type { Database, Tx } from "../database/database.ts";
import { recordOperatorAction } from "../database/operator-queries.ts";
import type { Operator, OperatorActionName } from "../database/operator-queries.ts";
import {
  countRepublications,
  lockMessages,
  makeDue,
  markSkipped,
} from "../database/outbox-change-queries.ts";
import type { LockedMessage } from "../database/outbox-change-queries.ts";
import { notifyOutbox } from "../database/outbox-wake-up.ts";
import { DomainError } from "../domain/errors.ts";
import type { ErrorCode } from "../domain/errors.ts";
import type { OutgoingMessage, Publisher } from "../messaging/sns-publisher.ts";
import { refuseSkippedMessage } from "./apply-ledger-entries.ts";
import type { AppliedMessage } from "./due-booking.ts";
import { publishAgain } from "./publish-again.ts";

export interface OperateInput {
  readonly messageIds: readonly string[];
  readonly operator: Operator;
  /** Looks and answers the same, and changes nothing. */
  readonly isDryRun: boolean;
}

/** What an operator's command did to a message. */
export interface OperatedMessage {
  readonly messageId: string;
  readonly type: string;
  readonly from: LockedMessage["status"];
  readonly to: LockedMessage["status"];
}

/**
 * Makes DEAD and deferred messages due at once, all in one commit. A second call finds them due and makes them due again.
 *
 * @throws DomainError `message_not_found`, or `message_not_retryable` where one was published or skipped or a relay has it
 * in hand; then nothing is changed
 */
export async function retryMessages(
  database: Database,
  input: OperateInput,
): Promise<OperatedMessage[]> {
  const retried = await tryOut(database, input, async (tx) => {
    const messages = await lockAll(tx, input, {
      code: "message_not_retryable",
      refuse: refuseOpen,
    });
    for (const message of messages) await record(tx, input, { action: "outbox.retry", message });
    await makeDue(tx, input.messageIds);
    return messages.map((message) => operated(message, "PENDING"));
  });
  if (!input.isDryRun) await notifyOutbox(database);
  return retried;
}

export interface SkippedMessage extends OperatedMessage {
  /** What became of what waited for it; null where nothing does. */
  readonly applied: AppliedMessage | null;
}

/** What the ledger waits for: a payment, a capture, a refund, which ends with the message. */
const AWAITED_BY_LEDGER = new Set(["payment.created", "payment.captured", "refund.created"]);

/**
 * Takes messages out of the way of their followers for ever. What the ledger waits for ends in the same commit as if the
 * ledger had refused it: hold released, failure `message_skipped`, its event written; a copy that a broker delivers all the
 * same finds it decided. A second call refuses.
 *
 * @throws DomainError `message_not_found`, or `message_not_skippable` where one was published or skipped or a relay has it in
 * hand; then nothing is changed
 */
export async function skipMessages(
  database: Database,
  input: OperateInput,
): Promise<SkippedMessage[]> {
  const skipped = await tryOut(database, input, async (tx) => {
    const messages = await lockAll(tx, input, {
      code: "message_not_skippable",
      refuse: refuseOpen,
    });
    const results: SkippedMessage[] = [];
    for (const message of messages) {
      await record(tx, input, { action: "outbox.skip", message });
      await markSkipped(tx, message.messageId);
      const isAwaited = isOfRemit(message) && AWAITED_BY_LEDGER.has(message.type);
      const applied = isAwaited ? await refuseSkippedMessage(tx, message) : null;
      results.push({ ...operated(message, "SKIPPED"), applied });
    }
    return results;
  });
  if (!input.isDryRun) await notifyOutbox(database);
  return skipped;
}

export interface RepublishedMessage extends OperatedMessage {
  /** The broker's receipt; null after a dry run. */
  readonly brokerMessageId: string | null;
}

/**
 * Sends published messages again under their own ids, for a consumer that lost them; Remit's ledger absorbs them. The record
 * is committed before the call, and the receipt after it: a crash between the two leaves the trace. A second call sends
 * again.
 *
 * @throws DomainError `message_not_found`, `message_not_republishable` where one was never published; then nothing is sent;
 * `message_not_republishable` where SNS refuses one, and `broker_unreachable` where it doesn't answer: both name those that it
 * took before
 */
export async function republishMessages(
  { database, publisher }: { database: Database; publisher: Publisher },
  input: OperateInput,
): Promise<RepublishedMessage[]> {
  const messages = await tryOut(database, input, async (tx) => {
    const locked = await lockAll(tx, input, {
      code: "message_not_republishable",
      refuse: ({ status }) => (status === "PUBLISHED" ? null : `it is ${status}`),
    });
    const outgoing: (LockedMessage & OutgoingMessage)[] = [];
    for (const message of locked) {
      const republication = 1 + (await countRepublications(tx, message.messageId));
      await record(tx, input, {
        action: "outbox.republish",
        message,
        details: { republication },
      });
      outgoing.push({ ...message, republication });
    }
    return outgoing;
  });
  const republished: RepublishedMessage[] = [];
  for (const message of messages) {
    const brokerMessageId = input.isDryRun
      ? null
      : await sendAgain({ database, publisher }, { message, input, before: republished });
    republished.push({ ...operated(message, "PUBLISHED"), brokerMessageId });
  }
  return republished;
}

async function sendAgain(
  { database, publisher }: { database: Database; publisher: Publisher },
  {
    message,
    input,
    before,
  }: {
    message: LockedMessage & OutgoingMessage;
    input: OperateInput;
    before: readonly OperatedMessage[];
  },
): Promise<string> {
  const sent = before.map(({ messageId }) => messageId);
  const told = `sent again before it: ${sent.join(", ") || "none"}`;
  const answer = await publishAgain(publisher, message).catch((error: unknown) => {
    if (!(error instanceof DomainError)) throw error;
    throw new DomainError(error.code, `${error.message}; ${told}`, { details: { sent } });
  });
  if (answer.kind === "fault") {
    throw new DomainError(
      "message_not_republishable",
      `SNS refuses ${message.messageId} for what it is (${answer.error}); ${told}`,
      { details: { sent } },
    );
  }
  const { brokerMessageId } = answer;
  await record(database, input, {
    action: "outbox.republished",
    message,
    details: { brokerMessageId, republication: message.republication },
  });
  return brokerMessageId;
}

/** Rolls a dry run back after the work, so that it meets every refusal that the work itself would meet. */
async function tryOut<Result>(
  database: Database,
  { isDryRun }: OperateInput,
  work: (tx: Tx) => Promise<Result>,
): Promise<Result> {
  if (!isDryRun) return await inTransaction(database, work);
  let result: { readonly value: Result } | undefined;
  const undo = new Error("a dry run is undone");
  await inTransaction(database, async (tx) => {
    result = { value: await work(tx) };
    throw undo;
  }).catch((error: unknown) => {
    if (error !== undo) throw error;
  });
  if (result === undefined) throw undo;
  return result.value;
}

async function lockAll(
  tx: Tx,
  { messageIds }: OperateInput,
  { code, refuse }: { code: ErrorCode; refuse: (message: LockedMessage) => string | null },
): Promise<LockedMessage[]> {
  const messages = await lockMessages(tx, messageIds);
  const found = new Set(messages.map(({ messageId }) => messageId));
  const missing = messageIds.filter((id) => !found.has(id));
  if (missing.length > 0) {
    throw new DomainError(
      "message_not_found",
      `the outbox has no message ${missing.join(", ")}: remit outbox list names them`,
    );
  }
  const refusals = messages.flatMap((message) => {
    const reason = refuse(message);
    return reason === null ? [] : [`${message.messageId}: ${reason}`];
  });
  if (refusals.length > 0) {
    throw new DomainError(code, `nothing was changed: ${refusals.join("; ")}`);
  }
  return messages;
}

function refuseOpen({ status, isLeased }: LockedMessage): string | null {
  if (status === "PUBLISHED") return "it is published: remit outbox republish sends it again";
  if (status === "SKIPPED") return "it was skipped, for ever";
  if (isLeased) return "a relay has it in hand this moment: repeat in ten seconds";
  return null;
}

async function record(
  tx: Tx,
  { operator }: OperateInput,
  {
    action,
    message,
    details = {},
  }: {
    action: OperatorActionName;
    message: LockedMessage;
    details?: Record<string, unknown>;
  },
): Promise<void> {
  const { messageId, status, claims, attempts, lastError } = message;
  await recordOperatorAction(tx, {
    ...operator,
    action,
    messageId,
    details: { status, claims, attempts, lastError, ...details },
  });
}

function isOfRemit({ aggregateType }: LockedMessage): boolean {
  return aggregateType === "payment" || aggregateType === "refund";
}

function operated(
  { messageId, type, status }: LockedMessage,
  to: LockedMessage["status"],
): OperatedMessage {
  return { messageId, type, from: status, to };
}
