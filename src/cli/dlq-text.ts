import type { LetterReport } from "../activities/operate-dead-letters.ts";
import { terminalText } from "./terminal-text.ts";

export type LetterVerb = "peek" | "redrive" | "discard";

/** Why a run ended; there may be more letters where it wasn't the end of the queue. */
export type LetterRunEnd = "exhausted" | "limit" | "interrupted";

/** What is done, and whether it is only tried. */
export interface LetterTask {
  readonly verb: LetterVerb;
  readonly isDryRun: boolean;
}

/** What came of a run. */
export interface LetterOutcome extends LetterTask {
  readonly letters: readonly LetterReport[];
  readonly end: LetterRunEnd;
  /** Asked for by --message-id, and not in the queue. */
  readonly missing: readonly string[];
}

const DONE = { peek: "looked at", redrive: "redriven", discard: "discarded" } as const;
const ENDS: Readonly<Record<LetterRunEnd, readonly string[]>> = {
  exhausted: [],
  limit: ["stopped at --limit; there may be more"],
  interrupted: ["interrupted; the others are as they were"],
};
const ID_CHARACTERS = 40;

/** A redrive is for what stands for a published event of ours; the others are for whatever the filter lets through. */
export function isMeant({ verb }: LetterTask, { outboxStatus }: LetterReport): boolean {
  return verb !== "redrive" || outboxStatus === "PUBLISHED";
}

/** A line a letter, then what it was all in all. */
export function outcomeText(outcome: LetterOutcome): string {
  const { letters, isDryRun, end, missing } = outcome;
  const title = isDryRun ? ["dry run, nothing was changed:"] : [];
  const lines = letters.map((letter) => letterText(outcome, letter));
  const absent = missing.map((id) => `${id}: not in the dead-letter queue`);
  const sum = letters.length === 0 ? "no such letters" : sumText(outcome, letters);
  return [...title, ...lines, ...absent, sum, ...ENDS[end]].join("\n");
}

/** How many of each kind, in half a line. */
export function sumText(task: LetterTask, letters: readonly LetterReport[]): string {
  const { verb, isDryRun } = task;
  if (verb === "peek") return `${letters.length} looked at`;
  const count = letters.filter((letter) =>
    isDryRun ? isMeant(task, letter) : letter.done !== "left",
  ).length;
  return `${count} ${isDryRun ? "would be " : ""}${DONE[verb]}, ${letters.length - count} left`;
}

/** One line; all that a stranger may have written is made harmless. */
export function letterText(task: LetterTask, letter: LetterReport): string {
  const { messageId, sqsMessageId, type, paymentId, receiveCount, sentAt } = letter;
  const of = paymentId === null ? "" : ` of ${terminalText(paymentId, ID_CHARACTERS)}`;
  const what =
    messageId === null
      ? `letter ${sqsMessageId}`
      : `${messageId}  ${terminalText(type ?? "")}${of}`;
  if (letter.done !== "left") return `${what}: ${letter.done}`;
  const advice = terminalText(letter.advice);
  if (task.verb === "peek") {
    return `${what}, sent ${sentAt.toISOString()}, received ${receiveCount} times: ${advice}`;
  }
  const plan = task.isDryRun && isMeant(task, letter) ? `would be ${DONE[task.verb]}` : "stays";
  return `${what}: ${plan} (${advice})`;
}
