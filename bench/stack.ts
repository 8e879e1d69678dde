import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { settingsFromStack } from "../src/config/settings.ts";
import type { Settings } from "../src/config/settings.ts";
import type { StackFile } from "../src/config/stack-file.ts";
import { endLeftovers, startGuard } from "../src/local/guard.ts";
import { settlesWithin } from "../src/local/processes.ts";

const REPOSITORY_DIR = join(import.meta.dirname, "..");
const START_MS_MAX = 120_000;
/** Longer than two signals count as one. */
const ORDERLY_MS_MAX = 2_000;

/** A whole Remit as `npm start` gives it, in a folder of its own, and the floor's worker beside it. */
export interface BenchStack {
  readonly settings: Settings;
  readonly stack: StackFile;
  readonly dataDir: string;
  close(): Promise<void>;
}

export async function startBenchStack(): Promise<BenchStack> {
  const directory = mkdtempSync(join(tmpdir(), "remit-bench-"));
  const dataDir = join(directory, "stack");
  // A bench that is killed takes its stack with it.
  const guard = startGuard({
    recordsDir: join(directory, "processes"),
    removeDirAtDeath: directory,
  });
  const remit = spawn(
    process.execPath,
    [join(REPOSITORY_DIR, "bin", "remit.mjs"), "dev", "--data-dir", dataDir],
    { cwd: REPOSITORY_DIR, stdio: ["ignore", "pipe", "inherit"] },
  );
  guard.add({ name: "remit dev", pid: remit.pid ?? 0, signal: "SIGINT" });
  const stack = await untilStarted(remit, dataDir);
  const settings = settingsFromStack(stack);
  const floor = spawn(process.execPath, [join(import.meta.dirname, "floor-worker.ts")], {
    env: { ...process.env, TEMPORAL_ADDRESS: settings.temporal.address },
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  await once(floor, "message");
  return {
    settings,
    stack,
    dataDir,
    close: async () => {
      floor.kill("SIGKILL");
      const exited = once(remit, "exit");
      remit.kill("SIGINT");
      // The worker waits for the end of its SQS long poll, 20 s for nothing: a second signal ends the stack at once.
      if (!(await settlesWithin(exited, ORDERLY_MS_MAX))) remit.kill("SIGINT");
      await exited;
      await endLeftovers(join(dataDir, "processes"));
      await guard.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** The demo's verify is the last thing that a start does. */
async function untilStarted(remit: ChildProcess, dataDir: string): Promise<StackFile> {
  let output = "";
  remit.stdout?.on("data", (text: Buffer) => (output += text.toString()));
  const endsAt = Date.now() + START_MS_MAX;
  while (Date.now() < endsAt) {
    if (remit.exitCode !== null) throw new Error(`remit dev ended:\n${output}`);
    if (output.includes("kill -9 any of these")) {
      await delay(2_000);
      return JSON.parse(readFileSync(join(dataDir, "stack.json"), "utf8")) as StackFile;
    }
    await delay(200);
  }
  remit.kill("SIGINT");
  throw new Error(`remit dev did not start:\n${output}`);
}
