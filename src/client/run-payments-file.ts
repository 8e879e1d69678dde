import type { Settings } from "../config/settings.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { payLines } from "./pay-lines.ts";
import type { LineResult } from "./pay-lines.ts";
import { createPaymentClient } from "./payment-client.ts";
import type { PaymentAnswer } from "./payment-client.ts";
import { documentOfAnswer } from "./payment-document.ts";
import type { PaymentDocument } from "./payment-document.ts";
import { openPaymentsFile } from "./payments-file.ts";
import { toProblem } from "./problem.ts";
import { createProgressBar } from "./progress-bar.ts";
import type { IsRecorded } from "./record-again.ts";
import { connectTemporal } from "./temporal-connection.ts";

/** Where a command writes: data to `out`, messages to `err`, each a line without its end. */
export interface Output {
  readonly out: (line: string) => void;
  readonly err: (line: string) => void;
}

export interface RunPaymentsFileInput {
  readonly path: string;
  readonly settings: Settings;
  readonly concurrency?: number;
  /**
   * Lines are done when they are recorded, for a few Temporal events less; those that pay into an account which another
   * line spends from still wait for the ledger, since that money is there only then.
   */
  readonly endsAtReceipt?: boolean;
  readonly isJson: boolean;
  readonly output: Output;
  /** What PostgreSQL says; without it what Temporal has answered is shown. */
  readonly books?: Books;
}

export interface Books {
  readonly isRecorded: IsRecorded;
  /**
   * Brings a document up to what the books say now.
   * @throws DomainError `outcome_unknown` where they don't have its payment
   */
  readonly refresh: (document: PaymentDocument) => Promise<PaymentDocument>;
}

/**
 * Pays a file and prints one result a line as each completes, then a summary. Running it again answers the same, as
 * `replayed`. Returns the exit code: 0 when every line has an answer, refusals included; 7 where one has none.
 * @throws DomainError `file_invalid` before anything is paid, `temporal_unreachable`
 */
export async function runPaymentsFile(input: RunPaymentsFileInput): Promise<number> {
  const file = await openPaymentsFile(input.path);
  try {
    const connection = await connectTemporal(input.settings.temporal);
    try {
      const report = createReport(input, file.lineCount);
      await payLines({
        lines: file.lines(),
        client: createPaymentClient({
          client: connection.client,
          uiUrl: input.settings.temporal.uiUrl,
          traceparent: () => input.settings.traceparent,
          ...(input.books === undefined ? {} : { isRecorded: input.books.isRecorded }),
        }),
        concurrency: input.concurrency ?? CONCURRENCY,
        endsAtReceipt: ({ destination }) =>
          input.endsAtReceipt === true && !file.payers.has(destination),
        onResult: report.add,
      });
      return report.finish();
    } finally {
      await connection.close();
    }
  } finally {
    await file.close();
  }
}

/** Payments asked or waited for at a time: enough to keep one worker busy, far below what a dev server chokes on. */
export const CONCURRENCY = 12;

interface Report {
  readonly add: (result: LineResult) => Promise<void>;
  readonly finish: () => number;
}

function createReport({ isJson, output, books }: RunPaymentsFileInput, lineCount: number): Report {
  const startedAt = Date.now();
  const bar = createProgressBar(process.stderr, lineCount);
  let done = 0;
  const counts = new Map<string, number>();
  let exitCode = 0;
  return {
    async add(given) {
      const { result, document } = await inTheBooks(given, books);
      counts.set(outcomeOf(result), (counts.get(outcomeOf(result)) ?? 0) + 1);
      if ("error" in result) exitCode = Math.max(exitCode, exitCodeOfLine(result.error));
      bar.clear();
      output.out(isJson ? JSON.stringify(document) : lineText(result, document));
      done += 1;
      bar.draw(done);
    },
    finish() {
      bar.clear();
      const words = [...counts].map(([outcome, count]) => `${count} ${outcome}`);
      const seconds = ((Date.now() - startedAt) / 1_000).toFixed(1);
      output.err(`${lineCount} payments in ${seconds} s: ${words.join(", ")}`);
      return exitCode;
    },
  };
}

/** A refusal is an answer; silence isn't, and neither is what nobody foresaw. */
function exitCodeOfLine({ code }: DomainError): number {
  return ERROR_CODES[code].retryable ? ERROR_CODES[code].exit : 0;
}

function outcomeOf(result: LineResult): string {
  if (!("error" in result)) return result.answer.replayed ? "replayed" : result.end.status;
  return ERROR_CODES[result.error.code].retryable ? "without an answer" : "refused";
}

type LineDocument = Record<string, unknown> & { line: number };

interface Shown {
  readonly result: LineResult;
  readonly document: LineDocument;
}

/** The line's document as the books have it; one whose payment they don't have is without an answer, whatever Temporal said. */
async function inTheBooks(result: LineResult, books: Books | undefined): Promise<Shown> {
  if (result.answer === null) return { result, document: documentOfError(result) };
  try {
    return { result, document: await documentOf(result.answer, { result, books }) };
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== "outcome_unknown") throw error;
    const unanswered = { line: result.line, answer: null, error };
    return { result: unanswered, document: documentOfError(unanswered) };
  }
}

async function documentOf(
  answer: PaymentAnswer,
  { result, books }: { result: LineResult; books: Books | undefined },
): Promise<LineDocument> {
  const document = documentOfAnswer(answer, "end" in result ? result.end : undefined);
  return {
    line: result.line.line,
    ...(books === undefined ? document : await books.refresh(document)),
    ...("error" in result ? { error: toProblem(result.error) } : {}),
  };
}

function documentOfError(result: LineResult): LineDocument {
  const error = "error" in result ? { error: toProblem(result.error) } : {};
  return { line: result.line.line, ...requestOf(result), ...error };
}

function requestOf({ line: { request } }: LineResult): Record<string, unknown> {
  const { key = null, merchant = null } = request;
  return { merchant, idempotencyKey: key };
}

function lineText(result: LineResult, document: LineDocument): string {
  const request = result.line.request as Record<string, string | undefined>;
  const { amount: major, amountMinor } = request;
  const sum = major ?? (amountMinor === undefined ? "?" : `${amountMinor} minor units of`);
  const amount = `${sum} ${request["currency"] ?? "?"}`;
  const what = `${amount} ${request["from"] ?? "?"} → ${request["to"] ?? "?"}, key ${request["key"] ?? "?"}`;
  if ("error" in result) {
    return `line ${result.line.line}: ${result.error.code}: ${result.error.message} (${what})`;
  }
  const replayed = result.answer.replayed ? " (replayed)" : "";
  return `line ${result.line.line}: ${String(document["status"])}${replayed} ${what}`;
}
