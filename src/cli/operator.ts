import { hostname, userInfo } from "node:os";
import type { Command } from "commander";
import { assertText } from "../domain/text.ts";
import { DomainError } from "../domain/errors.ts";
import type { Operator } from "../database/operator-queries.ts";

interface OperationOptions {
  readonly reason?: string;
  readonly dryRun?: boolean;
}

/** Adds what every command that changes messages takes. */
export function withOperation(command: Command): Command {
  return command
    .option("--reason <text>", "why; kept with your name for ever")
    .option("--dry-run", "say what would happen and change nothing");
}

/** @throws DomainError `usage` without a reason outside of a dry run, `text_invalid` */
export function operationBy({ reason, dryRun }: OperationOptions): {
  operator: Operator;
  isDryRun: boolean;
} {
  const isDryRun = dryRun === true;
  if (reason === undefined && !isDryRun) {
    throw new DomainError("usage", "--reason is missing: it is kept with what you do");
  }
  return { operator: operatorAtTerminal(reason ?? "dry run"), isDryRun };
}

/**
 * The person at this terminal, for the record of what was done.
 * @throws DomainError `text_invalid` where the reason is empty, too long, or holds what no queue carries
 */
function operatorAtTerminal(reason: string): Operator {
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
