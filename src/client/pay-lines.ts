import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import type { PaymentParameters } from "../domain/payment.ts";
import type { PaymentEnd } from "../workflows/messages.ts";
import { parsePaymentRequest } from "./parameters.ts";
import type { PaymentRequest } from "./parameters.ts";
import type { PaymentAnswer, PaymentClient } from "./payment-client.ts";
import type { FileLine } from "./file-text.ts";
import { toDomainErrorOrInternal } from "./problem.ts";
import { createArrivals, createSlots, createTurns } from "./turns.ts";
import type { Arrivals, Slots, Turn, Turns } from "./turns.ts";

/** What became of one line: an end, or the error that it got instead. */
export type LineResult =
  | { readonly line: FileLine; readonly answer: PaymentAnswer; readonly end: PaymentEnd }
  | { readonly line: FileLine; readonly answer: PaymentAnswer | null; readonly error: DomainError };

export interface PayLinesInput {
  readonly lines: AsyncIterable<FileLine>;
  readonly client: Pick<PaymentClient, "pay" | "waitForEnd">;
  /** How many lines may be asked or waited for at a time. */
  readonly concurrency: number;
  /** Called once a line, in the order of completion. */
  readonly onResult: (result: LineResult) => Promise<void>;
  /** How long a line is asked again while nobody answers; 60 s unless said. */
  readonly retryMs?: number;
  /** How long an accepted line is waited for; 120 s unless said. */
  readonly waitMs?: number;
  /** Whether a line, and its run, is done when it is recorded; no line is unless said. */
  readonly endsAtReceipt?: (parameters: PaymentParameters) => boolean;
}

/**
 * Pays lines: those that share a (merchant, key) or an account are recorded in the order of the lines, the rest in
 * parallel. The hold that decides about funds is taken when a line is recorded, so nobody waits for an earlier line's
 * end, except who spends from an account that an earlier line pays into: that money is there only when it is booked.
 */
export async function payLines(input: PayLinesInput): Promise<void> {
  const turns = createTurns();
  const arrivals = createArrivals();
  const slots = createSlots(input.concurrency);
  // Lines that wait for their turn; beyond this nothing more is read, which bounds the memory.
  const lookAhead = createSlots(input.concurrency * LOOK_AHEAD_PER_SLOT);
  const running = new Set<Promise<void>>();
  const failures: unknown[] = [];
  const silence: Lanes["silence"] = { line: null };
  try {
    for await (const line of input.lines) {
      await lookAhead.acquire();
      if (failures.length > 0) break;
      const work = payLine(line, { input, slots, turns, arrivals, silence })
        .catch((error: unknown) => {
          failures.push(error);
        })
        .finally(() => {
          running.delete(work);
          lookAhead.release();
        });
      running.add(work);
    }
  } catch (error) {
    // The lines that are under way still get their answers.
    failures.push(error);
  }
  await Promise.all(running);
  if (failures.length > 0) throw failures[0];
}

const LOOK_AHEAD_PER_SLOT = 16;
const RETRY_MS = 60_000;
const RETRY_PAUSE_MS = 500;
const WAIT_MS = 120_000;

interface Lanes {
  readonly input: PayLinesInput;
  readonly slots: Slots;
  readonly turns: Turns;
  readonly arrivals: Arrivals;
  /** The first line that got no answer for all its time: those after it aren't asked, or an outage would take hours. */
  readonly silence: { line: number | null };
}

async function payLine(line: FileLine, lanes: Lanes): Promise<void> {
  const { input, slots, turns, arrivals, silence } = lanes;
  let parameters: PaymentParameters;
  try {
    parameters = parsePaymentRequest(line.request, `line ${line.line}`);
  } catch (error) {
    await input.onResult({ line, answer: null, error: toDomainErrorOrInternal(error) });
    return;
  }
  // Up to here nothing waits for anything: lines enter in the order of the file.
  const turn = turns.enter(namesOf(parameters));
  const funds = arrivals.settled(parameters.source);
  const arrived = arrivals.announce(parameters.destination);
  await Promise.all([turn.ready, funds]);
  await slots.acquire();
  try {
    const result =
      silence.line === null
        ? await acceptAndWait(line, { input, turn, parameters })
        : { line, answer: null, error: notAsked(silence.line) };
    if ("error" in result && result.error.code === "outcome_unknown") silence.line ??= line.line;
    arrived();
    await input.onResult(result);
  } finally {
    arrived();
    turn.done();
    slots.release();
  }
}

function namesOf({ merchant, idempotencyKey, source, destination }: PaymentParameters): string[] {
  return [`key ${merchant} ${idempotencyKey}`, `account ${source}`, `account ${destination}`];
}

async function acceptAndWait(
  line: FileLine,
  { input, turn, parameters }: { input: PayLinesInput; turn: Turn; parameters: PaymentParameters },
): Promise<LineResult> {
  const isManual = parameters.capture === "manual";
  const endsAtReceipt = !isManual && input.endsAtReceipt?.(parameters) === true;
  let answer: PaymentAnswer | null = null;
  try {
    answer = await acceptPatiently(line, { input, endsAtReceipt });
    turn.done();
    if (isManual || endsAtReceipt) {
      // It is authorized, which is all that a line can wait for (its end may be days away), or all that it is to wait for.
      const { paymentId, status } = answer;
      return { line, answer, end: { paymentId, status, failureCode: null } };
    }
    const end = await input.client.waitForEnd(answer, { timeoutMs: input.waitMs ?? WAIT_MS });
    return { line, answer, end };
  } catch (error) {
    return { line, answer, error: toDomainErrorOrInternal(error) };
  }
}

/** Asks with the same key and request id until there is an answer: a killed worker or server delays a line, no more. */
async function acceptPatiently(
  line: FileLine,
  { input, endsAtReceipt }: { input: PayLinesInput; endsAtReceipt: boolean },
): Promise<PaymentAnswer> {
  const request = line.request as unknown as PaymentRequest;
  const requestId = randomUUID();
  const endsAt = Date.now() + (input.retryMs ?? RETRY_MS);
  for (;;) {
    try {
      return await input.client.pay(request, { requestId, endsAtReceipt });
    } catch (error) {
      const isTransient = error instanceof DomainError && ERROR_CODES[error.code].retryable;
      if (!isTransient || error.code === "internal") throw error;
      if (Date.now() + RETRY_PAUSE_MS >= endsAt) throw outcomeUnknown(error);
      await sleep(RETRY_PAUSE_MS);
    }
  }
}

function notAsked(silent: number): DomainError {
  return new DomainError(
    "outcome_unknown",
    `not asked, since line ${silent} got no answer: run the file again when remit answers`,
  );
}

function outcomeUnknown(last: DomainError): DomainError {
  if (last.code === "outcome_unknown") return last;
  // An earlier attempt may have been recorded before the server went away.
  return new DomainError("outcome_unknown", `${last.message}: repeat with the same key`, {
    cause: last,
  });
}
