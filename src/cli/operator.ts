import { hostname, userInfo } from "node:os";
import { assertText } from "../domain/text.ts";
import { DomainError } from "../domain/errors.ts";
import type { Operator } from "../database/operator-queries.ts";

/**
 * The person at this terminal, for the record of what was done.
 * @throws DomainError `text_invalid` where the reason is empty, too long, or holds what no queue carries
 */
export function operatorAtTerminal(reason: string): Operator {
  if (reason.trim() === "") {
    throw new DomainError("text_invalid", "--reason: expected a text, found none");
  }
  assertText(reason, "--reason");
  return { actor: `${userName()}@${hostname()}`, reason: reason.trim() };
}

/** A container may run under a number that no name belongs to. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid-${process.getuid?.() ?? "unknown"}`;
  }
}
