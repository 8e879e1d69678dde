import { EnvReader } from "./env-reader.ts";
import { inspectSettings, showSettings } from "./inspect-settings.ts";
import type { SettingsView } from "./inspect-settings.ts";
import { loadSettings } from "./settings.ts";
import type { LoadSettingsInput, Settings } from "./settings.ts";
import { hasTargets } from "./targets.ts";

/** The settings of this process; the one place that reads its environment. */
export function loadEnvironmentSettings(
  input: Pick<LoadSettingsInput, "dataDir" | "needs"> = {},
): Settings {
  return loadSettings({ env: process.env, cwd: process.cwd(), ...input });
}

/** Whether this process's environment names any target of its own. */
export function hasNamedTargets(): boolean {
  return hasTargets(new EnvReader(process.env));
}

/** Every setting of this process and where it came from; asks for no target to be there. */
export function showEnvironmentSettings({
  dataDir,
}: Pick<LoadSettingsInput, "dataDir">): ReturnType<typeof showSettings> {
  return showSettings({ env: process.env, cwd: process.cwd(), dataDir, needs: [] });
}

/** The same with all that is wrong in it, and with what a worker can't do without. */
export function inspectEnvironmentSettings({
  dataDir,
}: Pick<LoadSettingsInput, "dataDir">): SettingsView {
  return inspectSettings({ env: process.env, cwd: process.cwd(), dataDir });
}
