import { loadSettings } from "./settings.ts";
import type { LoadSettingsInput, Settings } from "./settings.ts";

/** The settings of this process; the one place that reads its environment. */
export function loadEnvironmentSettings(
  input: Pick<LoadSettingsInput, "dataDir" | "needs"> = {},
): Settings {
  return loadSettings({ env: process.env, cwd: process.cwd(), ...input });
}
