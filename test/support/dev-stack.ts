import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { commandLineOf, isRunning } from "../../src/local/processes.ts";
import { eventually } from "./eventually.ts";
import type { ChildProcess } from "node:child_process";
import type { StackFile } from "../../src/config/stack-file.ts";

const REMIT = join(import.meta.dirname, "..", "..", "bin", "remit.mjs");
const START_MS_MAX = 90_000;

export interface DevRun {
  readonly child: ChildProcess;
  readonly output: () => string;
  readonly exitCode: Promise<number | null>;
}

/** `remit dev` as a process; `exitCode` is null when a signal ended it. */
export function runDev(dataDir: string, ...flags: string[]): DevRun {
  const child = spawn(process.execPath, [REMIT, "dev", "--data-dir", dataDir, ...flags], {
    // Also what `remit dev` must not listen to.
    env: { ...process.env, AWS_PROFILE: "nobody", TEMPORAL_NAMESPACE: "elsewhere" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  child.stdout.on("data", (chunk) => (text += String(chunk)));
  child.stderr.on("data", (chunk) => (text += String(chunk)));
  const exitCode = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, output: () => text, exitCode };
}

/** `remit dev` once its banner is there. */
export async function startedDev(dataDir: string): Promise<DevRun> {
  const dev = runDev(dataDir);
  await waitUntil("the banner is printed", () => hasBanner(dev) || dev.child.exitCode !== null);
  if (!hasBanner(dev)) throw new Error(`remit dev ended:\n${dev.output()}`);
  return dev;
}

function hasBanner(dev: DevRun): boolean {
  return dev.output().includes("Ctrl-C stops everything");
}

export function stackOf(dataDir: string): StackFile {
  return JSON.parse(readFileSync(join(dataDir, "stack.json"), "utf8")) as StackFile;
}

export function pidOf(dataDir: string, name: string): number {
  const found = stackOf(dataDir).processes.find((process) => process.name === name);
  if (found === undefined) throw new Error(`no process ${name} in ${dataDir}/stack.json`);
  return found.pid;
}

/** Processes whose command line names the folder, and of `known` those that still run. */
export function processesOf(dataDir: string, known: readonly number[] = []): number[] {
  const listed = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  const named = listed.map(Number).filter((pid) => commandLineOf(pid).includes(dataDir));
  return [...new Set([...named, ...known])].filter((pid) => isRunning(pid));
}

/** Waits until a promise of the system is kept; fails by its name after a bound. */
export async function waitUntil(
  promise: string,
  isKept: () => boolean,
  timeoutMs = START_MS_MAX,
): Promise<void> {
  const check = (): void => {
    if (!isKept()) throw new Error(`not within ${timeoutMs / 1_000} s: ${promise}`);
  };
  await eventually(check, { timeoutMs });
}
