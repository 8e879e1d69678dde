import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { testServices } from "../support/services.ts";
import type { Shell } from "./runbook.ts";

/** A folder as an operator's: `remit`, `temporal` and `psql` on PATH, `deploy` beside, and the settings of one Remit. */
export function createShell(dir: string, env: Readonly<Record<string, string>>): Shell {
  const bin = join(dir, "bin");
  mkdirSync(bin, { recursive: true });
  const command = (name: string, main: string): void =>
    writeFileSync(join(bin, name), `#!/bin/sh\nexec "${process.execPath}" "${main}" "$@"\n`, {
      mode: 0o755,
    });
  command("remit", resolve("src/cli/main.ts"));
  command("psql", resolve("test/alerts/psql-main.ts"));
  symlinkSync(testServices().REMIT_TEST_TEMPORAL_BINARY, join(bin, "temporal"));
  symlinkSync(resolve("deploy"), join(dir, "deploy"));
  return {
    cwd: dir,
    env: { ...env, HOME: dir, PATH: [bin, process.env["PATH"] ?? ""].join(delimiter) },
  };
}
