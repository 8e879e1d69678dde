import { readSettings } from "../../src/config/settings.ts";
import { EnvReader } from "../../src/config/env-reader.ts";
import type { Settings } from "../../src/config/settings.ts";
import type { CheckResult } from "../../src/cli/doctor/check.ts";

/** Settings as the environment gives them, with nothing refused. */
export function settingsOf(env: Readonly<Record<string, string>>): Settings {
  return readSettings(new EnvReader(env), { env, cwd: "/absent" });
}

/** What isn't ok, by name. */
export function complaintsOf(results: readonly CheckResult[]): CheckResult[] {
  return results.filter(({ status }) => status !== "ok");
}
