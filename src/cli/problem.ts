import { CommanderError } from "commander";
import type { Output } from "../client/run-payments-file.ts";
import { toDomainErrorOrInternal, toProblem } from "../client/problem.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { FIXES } from "./fixes.ts";

/** Prints a refusal, as one RFC 9457 document or as text that names the fix, and returns its exit code. */
export function reportProblem(
  thrown: unknown,
  { output, isJson }: { output: Output; isJson: boolean },
): number {
  const error =
    thrown instanceof CommanderError ? usageError(thrown) : toDomainErrorOrInternal(thrown);
  if (isJson) output.out(JSON.stringify(toProblem(error), jsonValue));
  else output.err(problemText(error));
  return ERROR_CODES[error.code].exit;
}

/** Both forms of a refusal, for whoever prints it within something else. */
export function reportableProblem(error: DomainError): { text: string; json: unknown } {
  return { text: problemText(error), json: toProblem(error) };
}

/** The text form: what was wrong, and what helps. */
export function problemText(error: DomainError): string {
  const stack = error.code === "internal" ? causeStack(error) : "";
  return `error: ${error.message} (${error.code})\n  fix: ${fixOf(error)}${stack}`;
}

/** A refusal can know better than its code what helps. */
function fixOf({ code, details }: DomainError): string {
  const fix = details["fix"];
  return typeof fix === "string" ? fix : FIXES[code];
}

/** Amounts are bigint inside and decimal strings outside. */
export function jsonValue(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? value.toString() : value;
}

function usageError(error: CommanderError): DomainError {
  const message =
    error.code === "commander.help"
      ? "expected a command"
      : error.message.replace(/^error: /, "").trim();
  return new DomainError("usage", message, { cause: error });
}

/** Nobody foresaw it, so whoever mends it needs to know where it happened. */
function causeStack({ cause }: DomainError): string {
  return cause instanceof Error && cause.stack !== undefined ? `\n${cause.stack}` : "";
}
