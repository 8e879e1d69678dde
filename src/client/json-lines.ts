import { DomainError } from "../domain/errors.ts";
import { REQUEST_FIELDS } from "./parameters.ts";
import { LINE_CHARACTERS_MAX, readText } from "./file-text.ts";
import type { FileLine, FilePart } from "./file-text.ts";

/**
 * Reads one JSON object a line; blank lines count and are skipped.
 * @throws DomainError `file_invalid` that names the line
 */
export async function* readJsonLines(part: FilePart): AsyncGenerator<FileLine> {
  let line = 0;
  for await (const text of splitLines(part)) {
    line++;
    if (text.trim() === "") continue;
    yield { line, request: parseObject(text, `${part.path} line ${line}`) };
  }
}

async function* splitLines(part: FilePart): AsyncGenerator<string> {
  let rest = "";
  let line = 1;
  for await (const chunk of readText(part)) {
    const pieces = (rest + chunk).split("\n");
    rest = pieces.pop() ?? "";
    for (const piece of pieces) {
      assertLength(piece, { part, line });
      yield piece;
      line++;
    }
    assertLength(rest, { part, line });
  }
  yield rest;
}

function assertLength(text: string, { part, line }: { part: FilePart; line: number }): void {
  if (text.length <= LINE_CHARACTERS_MAX) return;
  throw new DomainError(
    "file_invalid",
    `${part.path} line ${line}: expected at most ${LINE_CHARACTERS_MAX} characters`,
  );
}

function parseObject(text: string, path: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new DomainError("file_invalid", `${path}: expected a JSON object`, { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new DomainError("file_invalid", `${path}: expected a JSON object`);
  }
  const twice = repeatedField(text);
  if (twice !== null) {
    throw new DomainError(
      "file_invalid",
      `${path}: found the field ${JSON.stringify(twice)} twice`,
    );
  }
  const known: readonly string[] = REQUEST_FIELDS;
  const unknown = Object.keys(value).find((field) => !known.includes(field));
  if (unknown !== undefined) {
    throw new DomainError(
      "file_invalid",
      `${path}: expected the fields ${known.join(", ")}, found ${JSON.stringify(unknown)}`,
    );
  }
  return value as Record<string, unknown>;
}

/**
 * JSON.parse keeps the last of two fields of one name, and so could pay another amount than a person reads. Names are
 * compared as JSON.parse reads them: `"\u0061mount"` is `"amount"`.
 */
function repeatedField(text: string): string | null {
  const seen = new Set<string>();
  let depth = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}[\]]/g)) {
    if (/^[{[]$/.test(token)) depth += 1;
    else if (/^[}\]]$/.test(token)) depth -= 1;
    else if (depth === 1 && token.endsWith(":")) {
      const name = JSON.parse(token.replace(/\s*:$/, "")) as string;
      if (seen.has(name)) return name;
      seen.add(name);
    }
  }
  return null;
}
