import { readFileSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { cellsOf, totalOf } from "./report.ts";
import { soakFacts } from "./soak-report.ts";
import type { Result } from "./report.ts";

const FIGURES = {
  begin: "<!-- figures: npm run chaos -- --write docs/chaos.md -->",
  end: "<!-- end of figures -->",
} as const;
const SOAK = {
  begin: "<!-- soak: npm run chaos -- --soak --write docs/chaos.md -->",
  end: "<!-- end of soak -->",
} as const;
const HEADINGS = [
  "scenario",
  "faults",
  "payments",
  "lost",
  "doubled",
  "absorbed",
  "recovery max (s)",
  "seed",
  "date",
];

/**
 * Puts these results into the table between the two marks of a Markdown file; rows of scenarios that weren't played now
 * stay as they are, with their date.
 */
export function writeFigures(path: string, results: readonly Result[]): void {
  writeBetween(path, FIGURES, (figures) => {
    const rows = new Map(rowsOf(figures).map((row) => [row[0], row]));
    for (const result of results) rows.set(result.scenario, [...cellsOf(result), today()]);
    const sorted = [...rows.values()].toSorted(([left = ""], [right = ""]) =>
      left < right ? -1 : 1,
    );
    const total = [...cellsOf(totalOf(sorted.map(resultOf))).slice(0, -1), "", ""];
    return tableOf([HEADINGS, ...sorted, total]);
  });
}

/** Puts a soak in the place of the one before it. */
export function writeSoak(path: string, result: Result): void {
  const rows = [...soakFacts(result), ["date", today()]];
  writeBetween(path, SOAK, () => tableOf([["soak", "figure"], ...rows]));
}

function writeBetween(
  path: string,
  { begin, end }: { begin: string; end: string },
  tableFrom: (old: string) => string,
): void {
  const text = readFileSync(path, "utf8");
  const [before, rest = ""] = text.split(begin);
  const [old = "", after = ""] = rest.split(end);
  if (before === undefined || rest === "") throw new Error(`${path} has no line ${begin}`);
  const table = tableFrom(old);
  writeFileSync(path, `${before}${begin}\n\n${machine()}\n\n${table}\n\n${end}${after}`);
}

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

function machine(): string {
  const [cpu] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${cpus().length} × ${cpu?.model.trim()}, ${memory} GB, ${process.platform}, Node ${process.version.slice(1)}.`;
}

function rowsOf(figures: string): string[][] {
  return figures
    .split("\n")
    .filter((line) => /^\| .*:|^\| random/.test(line))
    .map((line) =>
      line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
    .filter(([name = ""]) => name !== "total" && !name.startsWith("-") && !name.startsWith(":"));
}

function resultOf([scenario = "", ...cells]: string[]): Result {
  const [runs, payments, lost, doubled, duplicatesAbsorbed, recoverySecondsMax, seed] =
    cells.map(Number);
  return {
    scenario,
    runs: runs ?? 0,
    payments: payments ?? 0,
    lost: lost ?? 0,
    doubled: doubled ?? 0,
    duplicatesAbsorbed: duplicatesAbsorbed ?? 0,
    recoverySecondsMax: recoverySecondsMax ?? 0,
    seed: seed ?? 0,
    problems: [],
  };
}

/** As `npm run format` would leave it. */
function tableOf(rows: readonly (readonly string[])[]): string {
  const columns = rows[0] ?? [];
  const widths = columns.map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? "").length)),
  );
  const lineOf = (cells: readonly string[]): string =>
    `| ${widths.map((width, column) => (cells[column] ?? "").padEnd(width)).join(" | ")} |`;
  const [headings = [], ...others] = rows;
  const rule = widths.map((width) => "-".repeat(width));
  return [headings, rule, ...others].map(lineOf).join("\n");
}
