import { DomainError } from "../domain/errors.ts";
import { EnvReader } from "./env-reader.ts";
import type { ShownSetting } from "./env-reader.ts";
import { readSettings } from "./settings.ts";
import type { LoadSettingsInput, Settings } from "./settings.ts";

/** Every setting as it holds, without a secret, and what doesn't fit. */
export interface SettingsView {
  /** Null where it can't be said which installation is meant. A part that is wrong has its default, or is an empty string. */
  readonly settings: Settings | null;
  readonly problems: readonly string[];
  readonly shown: readonly ShownSetting[];
  /** Variables that begin with `REMIT_` and that nothing reads. */
  readonly unread: readonly string[];
}

/** Looks at the settings without refusing any of them. */
export function inspectSettings(input: LoadSettingsInput): SettingsView {
  const reader = new EnvReader(input.env);
  const view = (settings: Settings | null, others: readonly string[]): SettingsView => ({
    settings,
    problems: [...reader.problems(), ...others],
    shown: reader.shown().toSorted((left, right) => (left.name < right.name ? -1 : 1)),
    unread: settings === null ? [] : reader.unread("REMIT_"),
  });
  try {
    return view(readSettings(reader, input), []);
  } catch (error) {
    if (!(error instanceof DomainError)) throw error;
    return view(null, [error.message]);
  }
}

/** @throws DomainError `usage` that names every problem, as any command does */
export function showSettings(
  input: LoadSettingsInput,
): Pick<SettingsView, "shown" | "unread"> & { settings: Settings } {
  const reader = new EnvReader(input.env);
  const settings = readSettings(reader, input);
  reader.throwIfWrong();
  const { shown, unread } = inspectSettings(input);
  return { settings, shown, unread };
}
