import type { SettingsView } from "../../config/inspect-settings.ts";
import { brokerGroup } from "./broker.ts";
import { runGroup } from "./check.ts";
import type { CheckGroup, CheckResult } from "./check.ts";
import { databaseGroup } from "./database.ts";
import { settingsGroup } from "./settings.ts";
import { temporalGroup } from "./temporal.ts";

export interface DoctorReport {
  /** No check failed; warnings and what could not be judged don't count. */
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
