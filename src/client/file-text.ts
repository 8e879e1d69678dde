import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { DomainError } from "../domain/errors.ts";

/** One payment of a file, as it stands there: its values aren't checked yet. */
export interface FileLine {
  /** Counts from 1, the header of a CSV file included. */
  readonly line: number;
  readonly request: Readonly<Record<string, unknown>>;
}

/** The part of an open file that is read; `end` is exclusive. */
export interface FilePart {
  readonly handle: FileHandle;
  readonly end: number;
  /** For messages. */
  readonly path: string;
  /** What each chunk was when it was read first; a reading fills it, and later ones compare. */
  readonly digests: string[];
}

/** Longest line, in characters: far above any payment, far below what hurts. */
export const LINE_CHARACTERS_MAX = 65_536;

/**
 * Decodes the part as UTF-8 without its byte order mark.
 * @throws DomainError `file_invalid` where it is something else; `outcome_unknown` where it isn't what it was when it was
 * read first, before a byte of the changed chunk is handed out
 */
export async function* readText(part: FilePart): AsyncGenerator<string> {
  const { end, path } = part;
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const buffer = Buffer.alloc(CHUNK_BYTES);
  let position = 0;
  try {
    while (position < end) {
      const chunk = buffer.subarray(0, Math.min(CHUNK_BYTES, end - position));
      await readChunk(part, chunk, position);
      position += chunk.length;
      yield decoder.decode(chunk, { stream: true });
    }
    yield decoder.decode();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_ENCODING_INVALID_ENCODED_DATA") throw error;
    throw new DomainError("file_invalid", `${path}: expected UTF-8 text, found other bytes`, {
      cause: error,
    });
  }
}

const CHUNK_BYTES = 65_536;

/** A file that is edited or cut in place while it is paid could pay an amount that nobody has written. */
async function readChunk(
  { handle, path, digests }: FilePart,
  chunk: Buffer,
  position: number,
): Promise<void> {
  let filled = 0;
  while (filled < chunk.length) {
    const { bytesRead } = await handle.read(
      chunk,
      filled,
      chunk.length - filled,
      position + filled,
    );
    if (bytesRead === 0) throw changed(path);
    filled += bytesRead;
  }
  const digest = createHash("sha256").update(chunk).digest("base64");
  const nth = position / CHUNK_BYTES;
  if ((digests[nth] ??= digest) !== digest) throw changed(path);
}

function changed(path: string): DomainError {
  return new DomainError(
    "outcome_unknown",
    `${path} was changed while it was read: lines without an answer here were not asked, run the file again`,
  );
}
