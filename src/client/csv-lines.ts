import { pipeline, Readable } from "node:stream";
import { CsvError, parse } from "csv-parse";
import { DomainError } from "../domain/errors.ts";
import { REQUEST_FIELDS } from "./parameters.ts";
import { LINE_CHARACTERS_MAX, readText } from "./file-text.ts";
import type { FileLine, FilePart } from "./file-text.ts";

/**
 * Reads CSV with a header line; an empty cell counts as absent.
 * @throws DomainError `file_invalid` that names the line
 */
export async function* readCsvLines(part: FilePart): AsyncGenerator<FileLine> {
  const parser = parse({
    columns: (header: string[]) => checkHeader(header, part.path),
    info: true,
    max_record_size: LINE_CHARACTERS_MAX,
    skip_empty_lines: true,
  });
  // Errors reach the loop below through the parser, which pipeline destroys.
  pipeline(Readable.from(readText(part)), parser, () => undefined);
  try {
    for await (const { info, record } of parser as AsyncIterable<CsvRecord>) {
      yield { line: info.lines - newlinesOf(record), request: withoutEmpty(record) };
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    throw new DomainError(
      "file_invalid",
      `${part.path}${lineOf(error)}: ${REASONS[error.code] ?? "not CSV"}`,
      {
        cause: error,
      },
    );
  }
}

interface CsvRecord {
  readonly info: { readonly lines: number };
  readonly record: Record<string, string>;
}

const REQUIRED_COLUMNS = ["key", "from", "to", "currency"] as const;

function checkHeader(header: string[], path: string): string[] {
  const known: readonly string[] = REQUEST_FIELDS;
  const problems = [
    ...REQUIRED_COLUMNS.filter((name) => !header.includes(name)).map((name) => `no ${name}`),
    ...(header.includes("amount") || header.includes("amountMinor") ? [] : ["no amount"]),
    ...header
      .filter((name) => !known.includes(name))
      .map((name) => `unknown ${JSON.stringify(name.slice(0, 40))}`),
    ...header.filter((name, index) => header.indexOf(name) !== index).map((name) => `two ${name}`),
  ];
  if (problems.length === 0) return header;
  throw new DomainError(
    "file_invalid",
    `${path} line 1: expected the columns key,from,to,amount|amountMinor,currency` +
      `[,merchant,description,capture,expires], found ${problems.slice(0, 5).join(", ")}`,
  );
}

/** A quoted description may span lines; the record is named by its first. */
function newlinesOf(record: Record<string, string>): number {
  return Object.values(record).join("").split("\n").length - 1;
}

function withoutEmpty(record: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== ""));
}

function lineOf(error: CsvError): string {
  const line = (error as { lines?: unknown }).lines;
  return typeof line === "number" ? ` line ${line}` : "";
}

const REASONS: Readonly<Record<string, string>> = {
  CSV_MAX_RECORD_SIZE: `expected at most ${LINE_CHARACTERS_MAX} characters in a line`,
  CSV_RECORD_INCONSISTENT_COLUMNS: "expected as many cells as the header has",
  CSV_RECORD_INCONSISTENT_FIELDS_LENGTH: "expected as many cells as the header has",
  CSV_QUOTE_NOT_CLOSED: "a quote is opened and never closed",
  CSV_INVALID_CLOSING_QUOTE: "a quote is closed in the middle of a cell",
  INVALID_OPENING_QUOTE: "a quote stands in the middle of a cell",
};
