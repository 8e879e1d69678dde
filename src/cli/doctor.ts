import { Option } from "commander";
import type { Command } from "commander";
import { toProblem } from "../client/problem.ts";
import { inspectEnvironmentSettings } from "../config/process-settings.ts";
import type { SettingsView } from "../config/inspect-settings.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { contextOf } from "./context.ts";
import { runGroup } from "./doctor-check.ts";
import type { CheckGroup, CheckResult } from "./doctor-check.ts";
import { brokerGroup } from "./doctor-broker.ts";
import { databaseGroup } from "./doctor-database.ts";
import { settingsGroup } from "./doctor-settings.ts";
import { temporalGroup } from "./doctor-temporal.ts";
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

export interface DoctorReport {
  /** No check failed; warnings don't count. */
  readonly ok: boolean;
  readonly checks: readonly CheckResult[];
}

export interface ExamineOptions {
  readonly isProbed?: boolean;
  /** This machine's clock, as ms since the epoch. */
  readonly now?: () => number;
}

/** Runs every check, all dependencies at the same time; what is away takes none of the others with it. */
export async function examine(
  view: SettingsView,
  { isProbed = false, now = Date.now }: ExamineOptions = {},
): Promise<DoctorReport> {
  const { settings } = view;
  const results = await Promise.all([
    runGroup(settingsGroup({ view, nodeVersion: process.versions.node })),
    runGroup(databaseGroup(settings, { now })),
    runGroup(temporalGroup(settings, { now })),
    runGroup(brokerGroup(settings, { now, isProbed })),
  ]);
  const checks = results.flat();
  return { ok: checks.every(({ status }) => status !== "fail"), checks };
}

/** Each check and what it is about, in the order in which they are reported. */
export function allChecks(): { name: string; about: string }[] {
  const linesOf = <Context>({ reach, checks }: CheckGroup<Context>): (typeof reach)[] => [
    { name: reach.name, about: reach.about },
    ...checks.map(({ name, about }) => ({ name, about })),
  ];
  const view = { settings: null, problems: [], shown: [], unread: [] };
  return [
    ...linesOf(settingsGroup({ view, nodeVersion: "" })),
    ...linesOf(databaseGroup(null, { now: Date.now })),
    ...linesOf(temporalGroup(null, { now: Date.now })),
    ...linesOf(brokerGroup(null, { now: Date.now, isProbed: true })),
  ];
}

function failedChecks({ checks }: DoctorReport): DomainError {
  const failed = checks.filter(({ status }) => status === "fail").map(({ name }) => name);
  return new DomainError(
    "doctor",
    `expected every check to pass, found failed: ${failed.join(", ")}`,
  );
}

const MARKS = { ok: "ok  ", warn: "WARN", fail: "FAIL" } as const;

function reportText({ checks }: DoctorReport): string {
  const width = Math.max(...checks.map(({ name }) => name.length));
  const lines = checks.flatMap(({ name, status, found, fix }) => [
    `${MARKS[status]}  ${name.padEnd(width)}  ${found}`,
    ...(fix === null ? [] : [`${" ".repeat(width + MARKS.ok.length + 4)}fix: ${fix}`]),
  ]);
  const count = (wanted: CheckResult["status"]): number =>
    checks.filter(({ status }) => status === wanted).length;
  return [...lines, `${count("ok")} ok, ${count("warn")} warnings, ${count("fail")} failed`].join(
    "\n",
  );
}
