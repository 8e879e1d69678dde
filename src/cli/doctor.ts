import { Option } from "commander";
import type { Command } from "commander";
import { toProblem } from "../client/problem.ts";
import { inspectEnvironmentSettings } from "../config/process-settings.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { contextOf } from "./context.ts";
import type { CheckResult, CheckStatus } from "./doctor/check.ts";
import { examine } from "./doctor/examine.ts";
import type { DoctorReport } from "./doctor/examine.ts";
import { addCommand } from "./options.ts";

/** `remit doctor`: the whole installation, and what to do about each thing that isn't right. */
export function registerDoctor(program: Command): void {
  addCommand(program, {
    name: "doctor",
    about: "check settings, PostgreSQL, Temporal, SNS and SQS; changes nothing",
    examples: ["remit doctor", "remit doctor --json", "remit doctor --probe"],
  })
    .addOption(new Option("--probe", "also publish a message that the ledger's filter stops"))
    .action(async ({ probe }: { probe?: boolean }, command: Command) => {
      const context = contextOf(command);
      const { dataDir } = command.optsWithGlobals<{ dataDir?: string }>();
      const report = await examine(inspectEnvironmentSettings({ dataDir }), {
        isProbed: probe === true,
      });
      // The one document is the report and, where a check failed, the problem as well.
      const json = report.ok ? report : { ...toProblem(failedChecks(report)), ...report };
      context.print({ json, text: reportText(report) });
      if (!report.ok) process.exitCode = ERROR_CODES.doctor.exit;
      // What hangs somewhere must not keep the process.
      setTimeout(() => process.exit(), LEFT_BEHIND_MS).unref();
    });
}

const LEFT_BEHIND_MS = 500;

function failedChecks({ checks }: DoctorReport): DomainError {
  const failed = checks.filter(({ status }) => status === "fail").map(({ name }) => name);
  return new DomainError(
    "doctor",
    `expected every check to pass, found failed: ${failed.join(", ")}`,
  );
}

const MARKS = { ok: "ok  ", warn: "WARN", fail: "FAIL", unknown: "?   " } as const;

/** One line a check; of those that one cause hides only the first, and how many they are. */
function reportText({ checks }: DoctorReport): string {
  const width = Math.max(...checks.map(({ name }) => name.length));
  const lines = checks.flatMap(({ name, status, found, fix }, index) => {
    const isSame = (other: CheckResult): boolean =>
      other.status === "unknown" && other.found === found;
    if (status === "unknown" && checks.findIndex(isSame) < index) return [];
    const others = checks.filter(isSame).length - 1;
    const more = others > 0 ? ` (and ${others} more)` : "";
    return [
      `${MARKS[status]}  ${name.padEnd(width)}  ${found}${more}`,
      ...(fix === null ? [] : [`${" ".repeat(width + MARKS.ok.length + 4)}fix: ${fix}`]),
    ];
  });
  return [...lines, summary(checks)].join("\n");
}

function summary(checks: readonly CheckResult[]): string {
  const count = (wanted: CheckStatus): number =>
    checks.filter(({ status }) => status === wanted).length;
  const unknown = count("unknown");
  const hidden = unknown === 0 ? "" : `, ${unknown} not judged`;
  return `${count("ok")} ok, ${count("warn")} to look at, ${count("fail")} failed${hidden}`;
}
