import { median } from "./load.ts";

/** One figure: what the rounds gave, beside what it should be. */
export interface Figure {
  readonly name: string;
  readonly unit: "ratio" | "s" | "ms" | "%" | "rows";
  /** A value a round. */
  readonly rounds: readonly number[];
  readonly target?: Target | undefined;
  /** What a reader needs to judge it: load, absolute rates. */
  readonly details?: Readonly<Record<string, number | string>>;
}

/** A bound on the median of the rounds. */
export type Target = { readonly atLeast: number } | { readonly atMost: number };

export interface Reporter {
  readonly figure: (figure: Figure) => void;
  /** A line for a person; not part of the output as JSON. */
  readonly note: (line: string) => void;
  /** What could not be measured is said, never left out. */
  readonly missing: (name: string, reason: string) => void;
}

/** Figures go to stdout, a line each; everything else to stderr. */
export function createReporter({ isJson }: { isJson: boolean }): Reporter {
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  return {
    figure: (figure) => print(isJson ? JSON.stringify(toJson(figure)) : toLine(figure)),
    note: (line) => (isJson ? say(line) : print(line)),
    missing: (name, reason) =>
      print(isJson ? JSON.stringify({ name, value: null, reason }) : `${named(name)} — ${reason}`),
  };
}

function toJson({ name, unit, rounds, target, details = {} }: Figure): Record<string, unknown> {
  return {
    name,
    value: rounded(median(rounds)),
    unit,
    min: rounded(Math.min(...rounds)),
    max: rounded(Math.max(...rounds)),
    rounds: rounds.map(rounded),
    ...(target === undefined ? {} : { target, meets: meets(median(rounds), target) }),
    ...Object.fromEntries(Object.entries(details).map(([key, value]) => [key, roundedOr(value)])),
  };
}

function toLine({ name, unit, rounds, target, details = {} }: Figure): string {
  const value = `${rounded(median(rounds)).toFixed(2)}${unit === "ratio" ? "" : ` ${unit}`}`;
  const [min, max] = [rounded(Math.min(...rounds)), rounded(Math.max(...rounds))];
  const spread = rounds.length > 1 ? `(${min} to ${max} in ${rounds.length} rounds)` : "";
  const more = Object.entries(details).map(([key, part]) => `${key} ${roundedOr(part)}`);
  return [named(name), value.padStart(12), spread, judgement(median(rounds), target), ...more]
    .filter((part) => part !== "")
    .join("  ");
}

function judgement(value: number, target: Target | undefined): string {
  if (target === undefined) return "";
  const bound = "atLeast" in target ? `≥ ${target.atLeast}` : `≤ ${target.atMost}`;
  return meets(value, target) ? `meets ${bound}` : `MISSES ${bound}`;
}

function meets(value: number, target: Target): boolean {
  return "atLeast" in target ? value >= target.atLeast : value <= target.atMost;
}

function named(name: string): string {
  return name.padEnd(44);
}

function roundedOr(value: number | string): number | string {
  return typeof value === "number" ? rounded(value) : value;
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
