import { InvalidArgumentError } from "commander";
import type { Command } from "commander";
import { parseDuration } from "../domain/duration.ts";
import { DomainError } from "../domain/errors.ts";
import { UUID_PATTERN } from "../domain/ids.ts";

/** Adds a command with what every command has: `--json` and examples under `--help`. */
export function addCommand(
  parent: Command,
  { name, about, examples }: { name: string; about: string; examples: readonly string[] },
): Command {
  return parent
    .command(name)
    .description(about)
    .option("--json", "print data as JSON, and an error as an RFC 9457 document")
    .addHelpText("after", `\nExamples:\n${examples.map((example) => `  $ ${example}`).join("\n")}`);
}

/** Adds a group of commands, whose own help shows where to go on. */
export function addGroup(parent: Command, name: string, about: string): Command {
  return parent
    .command(name)
    .description(about)
    .addHelpText("after", `\nMore: remit ${name} COMMAND --help`);
}

/** Reads "500ms", "30s", "5m" or "1h"; a bare number is seconds. */
export function parseDurationMs(text: string): number {
  const ms = parseDuration(text);
  if (ms === null) throw new InvalidArgumentError("expected a duration such as 30s or 5m");
  return ms;
}

/** @throws DomainError `usage` that names each id which is none; `of` says what the ids are of */
export function assertUuids(ids: readonly string[], of: string): void {
  const strays = ids.filter((id) => !UUID_PATTERN.test(id));
  if (strays.length === 0) return;
  throw new DomainError("usage", `expected ids of ${of} (UUIDs), found ${strays.join(", ")}`);
}

/** Makes a parser for a whole number within bounds. */
export function integerBetween(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`expected a whole number from ${min} to ${max}`);
  };
}
