import { DomainError } from "./errors.ts";

/** Longest description, in characters (UTF-16 units): far below what a message may hold. */
export const DESCRIPTION_CHARACTERS_MAX = 500;

/**
 * What SQS carries: #x9 #xA #xD #x20-#xD7FF #xE000-#xFFFD #x10000-#x10FFFF (XML 1.0). A lone surrogate or U+0000 would
 * make a poison row much later, so it is refused before the payment exists.
 * Source: Amazon SQS message quotas.
 */
// eslint-disable-next-line no-control-regex
const CARRIED_BY_SQS = /^[\u0009\u000a\u000d\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]*$/u;

/** @throws DomainError `text_invalid` */
export function assertText(value: unknown, path: string): void {
  if (typeof value !== "string") {
    throw new DomainError("text_invalid", `${path}: expected a text, found ${typeof value}`);
  }
  if (value.length > DESCRIPTION_CHARACTERS_MAX) {
    throw new DomainError(
      "text_invalid",
      `${path}: expected at most ${DESCRIPTION_CHARACTERS_MAX} characters, found ${value.length}`,
    );
  }
  if (!CARRIED_BY_SQS.test(value)) {
    throw new DomainError(
      "text_invalid",
      `${path}: found a control character, a lone surrogate, U+FFFE or U+FFFF, which no queue carries`,
    );
  }
}

/** A caller's text as the Web UI shows it literally: summaries and details are Markdown, and a link or a bold word in them would pass for ours. */
export function asMarkdownText(text: string): string {
  return text.trim().replaceAll(/[\\`*_{}[\]()<>#+\-.!|~&]/g, "\\$&");
}
