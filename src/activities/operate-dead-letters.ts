import { setTimeout as delay } from "node:timers/promises";
import type { Database } from "../database/database.ts";
import { knownMessage } from "../database/inbox-queries.ts";
import type { KnownMessage } from "../database/inbox-queries.ts";
import { recordOperatorAction } from "../database/operator-queries.ts";
import type { Operator } from "../database/operator-queries.ts";
import { countRepublications } from "../database/outbox-change-queries.ts";
import { getMessage } from "../database/outbox-queries.ts";
import { DomainError } from "../domain/errors.ts";
import type { DeadLetter, DeadLetters } from "../messaging/dead-letters.ts";
import type { Publisher } from "../messaging/sns-publisher.ts";
import { publishAgain } from "./publish-again.ts";

/** Which letters are meant; all that is said must fit. */
export interface LetterFilter {
  readonly messageIds?: readonly string[];
  readonly sqsMessageIds?: readonly string[];
  readonly type?: string;
  readonly paymentId?: string;
  /** Only those that are no message of ours by their shape. */
  readonly malformed?: boolean;
}

/** A letter with what is known of it, what should be done with it, and what was done. */
export interface LetterReport extends KnownMessage {
  readonly messageId: string | null;
  readonly sqsMessageId: string;
  readonly type: string | null;
  readonly paymentId: string | null;
  readonly receiveCount: number;
  readonly sentAt: Date;
  readonly wellFormed: boolean;
  readonly reason: string | null;
  readonly advice: string;
  readonly done: "redriven" | "discarded" | "left";
  readonly brokerMessageId: string | null;
}

export interface LetterDependencies {
  readonly database: Database;
  readonly letters: DeadLetters;
  /** Told of each letter as it is done, so that what was done before a failure is known. */
  readonly onLetter: (report: LetterReport) => void;
}

export interface LetterOperation {
  readonly filter: LetterFilter;
  readonly operator: Operator;
  readonly isDryRun: boolean;
}

/** Looks at letters and leaves them. */
export async function peekLetters(
  dependencies: LetterDependencies,
  filter: LetterFilter,
): Promise<void> {
  await eachLetter(dependencies, filter, async (report) => await Promise.resolve(report));
}

/**
 * Sends letters once more under their own ids: the event as the outbox holds it, through SNS, then the letter is removed. A
 * crash between the two sends it twice, which the ledger absorbs. What isn't well-formed, or stands for no published event of
 * ours, or is refused by SNS for what it is, is left. The record comes before the call.
 *
 * @throws DomainError `broker_unreachable` where SNS doesn't take one, or SQS doesn't remove one; what came before it is done
 */
export async function redriveLetters(
  dependencies: LetterDependencies & { publisher: Publisher },
  { filter, operator, isDryRun, perSecondMax }: LetterOperation & { perSecondMax: number | null },
): Promise<void> {
  const { database, letters, publisher } = dependencies;
  await eachLetter(dependencies, filter, async (report, letter) => {
    const { messageId } = report;
    if (messageId === null || report.outboxStatus !== "PUBLISHED" || isDryRun) return report;
    const message = await getMessage(database, messageId);
    if (message === null) return report;
    const republication = 1 + (await countRepublications(database, messageId));
    const { sqsMessageId, receiveCount } = letter;
    await recordOperatorAction(database, {
      ...operator,
      action: "dlq.redrive",
      messageId,
      details: { sqsMessageId, receiveCount, republication },
    });
    const answer = await publishAgain(publisher, { ...message, republication });
    if (answer.kind === "fault") return { ...report, advice: `SNS refuses it: ${answer.error}` };
    await removeSent(letters, letter, messageId);
    if (perSecondMax !== null) await delay(1_000 / perSecondMax);
    return { ...report, done: "redriven", brokerMessageId: answer.brokerMessageId };
  });
}

/** A letter that was sent and can't be removed is no lost work: whoever reads of the failure must know. */
async function removeSent(
  letters: DeadLetters,
  letter: DeadLetter,
  messageId: string,
): Promise<void> {
  try {
    await letters.remove(letter);
  } catch (error) {
    throw new DomainError(
      "broker_unreachable",
      `${messageId} was sent again, and its letter could not be removed: discard it, or redrive it, which the ledger absorbs`,
      { cause: error },
    );
  }
}

/** Removes letters and keeps their whole text with who and why. The payment that one stood for isn't touched by it. */
export async function discardLetters(
  dependencies: LetterDependencies,
  { filter, operator, isDryRun }: LetterOperation,
): Promise<void> {
  const { database, letters } = dependencies;
  await eachLetter(dependencies, filter, async (report, letter) => {
    if (isDryRun) return report;
    const { sqsMessageId, receiveCount, sentAt, body, reason } = letter;
    await recordOperatorAction(database, {
      ...operator,
      action: "dlq.discard",
      messageId: report.messageId,
      details: { sqsMessageId, receiveCount, sentAt, reason, ...evidence(body) },
    });
    await letters.remove(letter);
    return { ...report, done: "discarded" };
  });
}

/** jsonb takes no U+0000 and no lone surrogate, and the text must be kept as it came. */
function evidence(body: string): Record<string, string> {
  return body.isWellFormed() && !body.includes("\u0000")
    ? { body }
    : { bodyBase64: Buffer.from(body).toString("base64") };
}

async function eachLetter(
  { database, letters, onLetter }: LetterDependencies,
  filter: LetterFilter,
  handle: (report: LetterReport, letter: DeadLetter) => Promise<LetterReport>,
): Promise<void> {
  await letters.visit(async (letter) => {
    if (!fits(letter, filter)) return "kept";
    const report = await handle(await reportOf(database, letter), letter);
    onLetter(report);
    return report.done === "left" ? "kept" : "removed";
  });
}

function fits(letter: DeadLetter, filter: LetterFilter): boolean {
  const { message, sqsMessageId } = letter;
  const { messageIds, sqsMessageIds, type, paymentId, malformed } = filter;
  return (
    (messageIds === undefined || (message !== null && messageIds.includes(message.messageId))) &&
    (sqsMessageIds === undefined || sqsMessageIds.includes(sqsMessageId)) &&
    (type === undefined || message?.type === type) &&
    (paymentId === undefined || paymentIdOf(letter) === paymentId) &&
    (malformed !== true || message === null)
  );
}

async function reportOf(database: Database, letter: DeadLetter): Promise<LetterReport> {
  const { message, sqsMessageId, receiveCount, sentAt, reason } = letter;
  const known =
    message === null
      ? { outboxStatus: null, outcome: null, error: null }
      : await knownMessage(database, message.messageId);
  return {
    ...known,
    messageId: message?.messageId ?? null,
    sqsMessageId,
    type: message?.type ?? null,
    paymentId: paymentIdOf(letter),
    receiveCount,
    sentAt,
    wellFormed: message !== null,
    reason,
    advice: adviceOn(letter, known),
    done: "left",
    brokerMessageId: null,
  };
}

function adviceOn({ message, reason }: DeadLetter, known: KnownMessage): string {
  if (message === null) return `malformed (${reason}): find who sent it, then discard it`;
  if (known.outcome !== null)
    return `decided already (${known.error ?? known.outcome}): discard it`;
  if (known.outboxStatus === null) return "no event of ours has this id: discard it";
  if (known.outboxStatus === "PUBLISHED") return "redrive it";
  return `its event is ${known.outboxStatus}, so nothing was sent under this id: discard it`;
}

function paymentIdOf({ message }: DeadLetter): string | null {
  if (message === null) return null;
  const { data } = JSON.parse(message.payload) as { data?: { paymentId?: unknown } };
  return typeof data?.paymentId === "string" ? data.paymentId : null;
}
