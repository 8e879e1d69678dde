import { soakFacts } from "./soak-report.ts";

/** What became of a scenario: a line of the table. */
export interface Result {
  readonly scenario: string;
  /** Faults that were brought about. */
  readonly runs: number;
  readonly payments: number;
  readonly lost: number;
  readonly doubled: number;
  /** Deliveries beyond a message's first that booked nothing. */
  readonly duplicatesAbsorbed: number;
  readonly recoverySecondsMax: number;
  readonly seed: number;
  readonly problems: readonly string[];
  /** Of a planted fault: what one of the problems must say. */
  readonly expected?: string;
  readonly soak?: SoakFigures;
}

export interface SoakFigures {
  /** As it was asked for; Ctrl-C ends it earlier. */
  readonly minutes: number;
  readonly minutesPlayed: number;
  /** Share of the capacity that was asked for. */
  readonly load: number;
  /** Payments a second that this machine brought to their end when asked as fast as it answered. */
  readonly capacityPerSecond: number;
  readonly askedPerSecond: number;
  readonly inFlightMax: number;
  /** Payments that were asked late because so many were under way. */
  readonly heldByInFlightMax: number;
  readonly answerMs: Quantiles;
  /** By the books. */
  readonly settledMs: Quantiles;
  readonly faults: Readonly<Record<string, number>>;
  readonly memory: readonly WorkerMemory[];
}

export interface Quantiles {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Resident memory of a worker that lived to the end, after its first minute. */
export interface WorkerMemory {
  readonly worker: string;
  readonly minutes: number;
  readonly fromMegabytes: number;
  readonly toMegabytes: number;
  readonly megabytesAnHour: number;
}

export interface Reporter {
  readonly result: (result: Result) => void;
  readonly end: (results: readonly Result[]) => void;
  /** A line for a person; never on stdout where that is JSON. */
  readonly note: (line: string) => void;
}

export function createReporter({ isJson }: { isJson: boolean }): Reporter {
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const note = isJson ? say : print;
  if (!isJson) print(rowOf(HEADINGS));
  return {
    note,
    result: (result) => {
      print(isJson ? JSON.stringify(result) : lineOf(result));
      for (const [name, value] of isJson ? [] : soakFacts(result)) print(`    ${name}: ${value}`);
      if (result.expected !== undefined && isRight(result)) return;
      for (const problem of result.problems.slice(0, PROBLEMS_MAX)) note(`    ${problem}`);
      const more = result.problems.length - PROBLEMS_MAX;
      if (more > 0) note(`    and ${more} more`);
      if (!isRight(result)) note(`    again: ${replayOf(result)}`);
    },
    end: (results) => {
      const played = results.filter(({ expected }) => expected === undefined);
      if (!isJson && played.length > 1) print(lineOf(totalOf(played)));
    },
  };
}

/** Nothing is wrong; or, where a fault was planted, it was found. */
export function isRight({ lost, doubled, problems, expected }: Result): boolean {
  if (expected !== undefined) return problems.some((problem) => problem.includes(expected));
  return lost === 0 && doubled === 0 && problems.length === 0;
}

/** The command that makes the same choices again. */
export function replayOf({ scenario, seed, runs, soak }: Result): string {
  if (soak !== undefined)
    return `npm run chaos -- --soak --seed ${seed} --minutes ${soak.minutes} --load ${soak.load}`;
  return `npm run chaos -- --scenario ${scenario} --seed ${seed} --runs ${Math.max(1, runs)}`;
}

export function totalOf(results: readonly Result[]): Result {
  const sum = (of: (result: Result) => number): number =>
    results.reduce((total, result) => total + of(result), 0);
  return {
    scenario: "total",
    runs: sum(({ runs }) => runs),
    payments: sum(({ payments }) => payments),
    lost: sum(({ lost }) => lost),
    doubled: sum(({ doubled }) => doubled),
    duplicatesAbsorbed: sum(({ duplicatesAbsorbed }) => duplicatesAbsorbed),
    recoverySecondsMax: Math.max(0, ...results.map(({ recoverySecondsMax }) => recoverySecondsMax)),
    seed: results[0]?.seed ?? 0,
    problems: [],
  };
}

const PROBLEMS_MAX = 10;
const HEADINGS = [
  "scenario",
  "runs",
  "payments",
  "lost",
  "doubled",
  "absorbed",
  "recovery s",
  "seed",
];
const NAME_WIDTH = 30;
const WIDTH = 11;

function lineOf(result: Result): string {
  const verdict = isRight(result) ? (result.expected === undefined ? "" : "  found") : "  WRONG";
  return rowOf(cellsOf(result)) + verdict;
}

export function cellsOf(result: Result): string[] {
  const { scenario, runs, payments, lost, doubled, duplicatesAbsorbed, recoverySecondsMax } =
    result;
  const counts = [runs, payments, lost, doubled, duplicatesAbsorbed].map(String);
  return [scenario, ...counts, recoverySecondsMax.toFixed(1), String(result.seed)];
}

function rowOf([name = "", ...cells]: readonly string[]): string {
  return name.padEnd(NAME_WIDTH) + cells.map((cell) => cell.padStart(WIDTH)).join("");
}
