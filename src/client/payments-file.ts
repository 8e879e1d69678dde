import { open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { extname } from "node:path";
import { DomainError } from "../domain/errors.ts";
import { readCsvLines } from "./csv-lines.ts";
import { LINE_CHARACTERS_MAX } from "./file-text.ts";
import type { FileLine, FilePart } from "./file-text.ts";
import { readJsonLines } from "./json-lines.ts";

/** A file whose structure was found right from its first to its last line. */
export interface PaymentsFile {
  readonly lineCount: number;
  /** All accounts that any line pays from. */
  readonly payers: ReadonlySet<string>;
  /** Reads it once more, in bounded memory. */
  readonly lines: () => AsyncIterable<FileLine>;
  readonly close: () => Promise<void>;
}

/**
 * Opens a CSV or JSONL file of payments and reads it once from end to end, so that nothing is paid from a broken one.
 * Both passes end where the file ended when it was opened: one that grows meanwhile is fine.
 * @throws DomainError `file_invalid` that names the line
 */
export async function openPaymentsFile(path: string): Promise<PaymentsFile> {
  const readLines = lineReaderOf(path);
  const handle = await openFile(path);
  try {
    const size = await sizeOf(handle, path);
    let part = { handle, end: size, path, digests: [] as string[] };
    let found = await survey(readLines(part)).catch((error: unknown) => {
      if (error instanceof DomainError) return error;
      throw new DomainError("file_invalid", `${path} can't be read`, { cause: error });
    });
    // A file that has grown was perhaps cut in the middle of a line, whose amount may lack its last digit.
    if ((await handle.stat()).size !== size) {
      part = { ...part, end: await endOfLastLine(handle, size), digests: [] };
      found = await survey(readLines(part));
    }
    if (found instanceof DomainError) throw found;
    if (found.lineCount === 0) throw new DomainError("file_invalid", `${path} holds no payment`);
    return {
      ...found,
      lines: () => readLines(part),
      close: async () => {
        await handle.close();
      },
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function lineReaderOf(path: string): (part: FilePart) => AsyncIterable<FileLine> {
  switch (extname(path).toLowerCase()) {
    case ".csv":
      return readCsvLines;
    case ".jsonl":
    case ".ndjson":
      return readJsonLines;
    default:
      throw new DomainError("file_invalid", `${path}: expected a name that ends in .csv or .jsonl`);
  }
}

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await open(path, "r");
  } catch (error) {
    const reason =
      (error as NodeJS.ErrnoException).code === "ENOENT" ? "doesn't exist" : "can't be opened";
    throw new DomainError("file_invalid", `${path} ${reason}`, { cause: error });
  }
}

async function sizeOf(handle: FileHandle, path: string): Promise<number> {
  const stat = await handle.stat();
  // A pipe can't be read twice, and it is read twice.
  if (!stat.isFile()) throw new DomainError("file_invalid", `${path} is not a regular file`);
  if (stat.size === 0) throw new DomainError("file_invalid", `${path} is empty`);
  return stat.size;
}

async function survey(
  lines: AsyncIterable<FileLine>,
): Promise<Pick<PaymentsFile, "lineCount" | "payers"> | DomainError> {
  const payers = new Set<string>();
  let lineCount = 0;
  for await (const { request } of lines) {
    const { from } = request;
    lineCount++;
    if (typeof from === "string") payers.add(from);
  }
  return { lineCount, payers };
}

async function endOfLastLine(handle: FileHandle, size: number): Promise<number> {
  const length = Math.min(size, LINE_CHARACTERS_MAX * 4);
  const { buffer } = await handle.read({
    buffer: Buffer.alloc(length),
    position: size - length,
    length,
  });
  return size - length + buffer.lastIndexOf(0x0a) + 1;
}
