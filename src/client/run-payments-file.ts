import type { Settings } from "../config/settings.ts";
import { ERROR_CODES } from "../domain/errors.ts";
import type { DomainError } from "../domain/errors.ts";
import { payLines } from "./pay-lines.ts";
import type { LineResult } from "./pay-lines.ts";
import { createPaymentClient } from "./payment-client.ts";
import { documentOfAnswer } from "./payment-document.ts";
import type { PaymentDocument } from "./payment-document.ts";
import { openPaymentsFile } from "./payments-file.ts";
import { toProblem } from "./problem.ts";
import { createProgressBar } from "./progress-bar.ts";
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
  /** Brings a document up to what the books say now; without it the payment's end is shown. */
  readonly refresh?: (document: PaymentDocument) => Promise<PaymentDocument>;
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

function createReport(
  { isJson, output, refresh }: RunPaymentsFileInput,
  lineCount: number,
): Report {
  const startedAt = Date.now();
  const bar = createProgressBar(process.stderr, lineCount);
  let done = 0;
  const counts = new Map<string, number>();
  let exitCode = 0;
  return {
    async add(result) {
      counts.set(outcomeOf(result), (counts.get(outcomeOf(result)) ?? 0) + 1);
      if ("error" in result) exitCode = Math.max(exitCode, exitCodeOfLine(result.error));
      const document = await documentOf(result, refresh);
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

async function documentOf(
  result: LineResult,
  refresh: RunPaymentsFileInput["refresh"],
): Promise<LineDocument> {
  const { line } = result.line;
  const error = "error" in result ? { error: toProblem(result.error) } : {};
  if (result.answer === null) return { line, ...requestOf(result), ...error };
  const document = documentOfAnswer(result.answer, "end" in result ? result.end : undefined);
  return { line, ...(refresh === undefined ? document : await refresh(document)), ...error };
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
