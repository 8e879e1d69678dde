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
}

/** Longest line, in characters: far above any payment, far below what hurts. */
export const LINE_CHARACTERS_MAX = 65_536;

/**
 * Decodes the part as UTF-8 without its byte order mark.
 * @throws DomainError `file_invalid` where it is something else
 */
export async function* readText({ handle, end, path }: FilePart): AsyncGenerator<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const buffer = Buffer.alloc(CHUNK_BYTES);
  let position = 0;
  try {
    while (position < end) {
      const length = Math.min(CHUNK_BYTES, end - position);
      const { bytesRead } = await handle.read({ buffer, position, length });
      if (bytesRead === 0) break;
      position += bytesRead;
      yield decoder.decode(buffer.subarray(0, bytesRead), { stream: true });
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
