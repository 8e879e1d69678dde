/**
 * A stranger's text for a terminal: whoever can write into a queue must not move the operator's cursor, colour his screen or
 * write him a line of his own. Control characters and those that turn the direction of a line become their escapes.
 */
export function terminalText(text: string, charactersMax = CHARACTERS_MAX): string {
  const cut = text.length > charactersMax ? `${text.slice(0, charactersMax)}…` : text;
  return cut.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16).padStart(4, "0");
    return String.raw`\u${code}`;
  });
}

/** Lines that may quote a stranger (a description, a reason): each stays one line, of whatever length. */
export function terminalLines(lines: readonly string[]): string {
  return lines.map((line) => terminalText(line, Number.POSITIVE_INFINITY)).join("\n");
}

const CHARACTERS_MAX = 300;
