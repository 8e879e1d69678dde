import { parseArgs } from "node:util";

/** What may be measured; a word on the command line chooses, `accept` is what runs without one. */
const SUITES = [
  "accept",
  "cost",
  "relay",
  "growth",
  "process",
  "profile",
  "verify",
  "all",
] as const;
/** The parts of the relay's suite, in the order in which they run. */
export const RELAY_PARTS = ["throughput", "latency", "claim", "wakeup", "heldxid"] as const;

export type Suite = (typeof SUITES)[number];
export type RelayPart = (typeof RELAY_PARTS)[number];

export interface BenchOptions {
  readonly suite: Suite;
  readonly isJson: boolean;
  readonly rounds: number;
  /** Pending events that one drain publishes. */
  readonly events: number;
  /** Published rows in the table of which a claim's cost is compared with an empty one. */
  readonly publishedRows: number;
  /** How long a foreign transaction holds its xid and snapshot. */
  readonly heldSeconds: number;
  /** Old payments of a long history. */
  readonly payments: number;
  readonly parts: readonly RelayPart[];
}

const ROUNDS = 5;
/** Fewer say nothing about the spread. */
const ROUNDS_MIN = 3;

/** Says what is wrong and how the command is used, without a stack. */
export class UsageError extends Error {
  constructor(problem: string) {
    super(`${problem}\n${USAGE}`);
  }
}

/** @throws UsageError */
export function readOptions(args: readonly string[]): BenchOptions {
  const { values, positionals } = parse(args);
  return {
    suite: oneOf(SUITES, positionals[0] ?? "accept"),
    isJson: values.json,
    rounds: Math.max(ROUNDS_MIN, count("rounds", values.rounds)),
    events: count("events", values.events),
    publishedRows: count("rows", values.rows),
    heldSeconds: count("held-seconds", values["held-seconds"]),
    payments: tenThousands(count("payments", values.payments)),
    parts: values.only.split(",").map((part) => oneOf(RELAY_PARTS, part)),
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        json: { type: "boolean", default: false },
        rounds: { type: "string", default: String(ROUNDS) },
        events: { type: "string", default: "5000" },
        rows: { type: "string", default: "5000000" },
        "held-seconds": { type: "string", default: "60" },
        payments: { type: "string", default: "1000000" },
        only: { type: "string", default: RELAY_PARTS.join(",") },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function count(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new UsageError(`--${name} ${text}: a whole number above 0 was expected`);
  }
  return value;
}

/** Each of the 10,000 accounts has as many of them. */
function tenThousands(payments: number): number {
  if (payments % 10_000 === 0) return payments;
  throw new UsageError(`--payments ${payments}: a multiple of 10,000 was expected`);
}

function oneOf<Word extends string>(words: readonly Word[], given: string): Word {
  const found = words.find((word) => word === given);
  if (found !== undefined) return found;
  throw new UsageError(`${given}: one of ${words.join(", ")} was expected`);
}

const USAGE =
  "usage: npm run bench [-- accept|cost|relay|growth|process|profile|verify|all] [--json] [--rounds N] [--events N] [--rows N] [--held-seconds N] [--payments N] [--only part,…]";
