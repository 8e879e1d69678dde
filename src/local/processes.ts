import { execFileSync, spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync, renameSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { ChildProcess } from "node:child_process";

/** Takes one line for a person; where it goes is the caller's decision. */
export type Log = (line: string) => void;

/** How a process ended. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A service that runs: `exited` resolves at its end, whoever caused it. */
export interface Service {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  readonly stop: () => Promise<void>;
}

/** Remembers which processes must not outlive this one. */
export interface Guard {
  readonly add: (process: { name: string; pid: number; signal: NodeJS.Signals }) => void;
  readonly remove: (pid: number) => void;
}

export interface LaunchOptions {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
  /** Output is appended here, so that it survives whoever started the process. */
  readonly logFile: string;
  readonly ipc?: boolean;
  /** Set where the caller is root and the service must not be. */
  readonly user?: { uid: number; gid: number };
  readonly stopSignal?: NodeJS.Signals;
  readonly stopGraceMs?: number;
  readonly guard?: Guard | undefined;
}

export interface Launched extends Service {
  readonly child: ChildProcess;
}

const LOG_BYTES_MAX = 20 * 1024 * 1024;
const STOP_GRACE_MS = 10_000;
const LOOK_AGAIN_MS = 50;

/** Starts a process in a session of its own: Ctrl-C reaches only us, and we decide the order in which things end. */
export async function launch(options: LaunchOptions): Promise<Launched> {
  const { name, guard, stopSignal = "SIGTERM", stopGraceMs = STOP_GRACE_MS } = options;
  const output = openLog(options.logFile);
  const child = spawn(options.command, options.args, {
    cwd: options.cwd,
    env: options.env,
    detached: true,
    stdio: ["ignore", output, output, ...(options.ipc === true ? (["ipc"] as const) : [])],
    ...options.user,
  });
  closeSync(output);

  const exited = new Promise<Exit>((resolve) => {
    child.once("exit", (code, signal) => {
      if (child.pid !== undefined) guard?.remove(child.pid);
      resolve({ code, signal });
    });
  });
  const pid = child.pid ?? (await startFailure(child, name));
  guard?.add({ name, pid, signal: stopSignal });

  const stop = async (): Promise<void> => {
    child.kill(stopSignal);
    const ended = await settlesWithin(exited, stopGraceMs);
    if (!ended) child.kill("SIGKILL");
    await exited;
  };
  return { child, pid, exited, stop };
}

/** Where a process wrote why it ended, with its last line: the folder may be gone with the run. */
export function logOf(file: string): string {
  const line = lastLineOf(file).slice(0, LINE_CHARACTERS_MAX);
  return `see ${file}${line === "" ? "" : `, which ends with: ${line}`}`;
}

function lastLineOf(file: string): string {
  try {
    return readFileSync(file, "utf8").trimEnd().split("\n").at(-1) ?? "";
  } catch {
    return "";
  }
}

const LINE_CHARACTERS_MAX = 400;

/** Whether a promise settles in time; the timer doesn't keep the process alive. */
export async function settlesWithin(
  promise: Promise<unknown>,
  timeoutMs: number,
): Promise<boolean> {
  const late = new AbortController();
  try {
    return await Promise.race([
      promise.then(() => true),
      delay(timeoutMs, false, { ref: false, signal: late.signal }),
    ]);
  } finally {
    late.abort();
  }
}

/** True while a process with this id exists, whoever owns it. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  return !isZombie(pid);
}

/**
 * Tells a process from a later one that got the same id: boot and start time. Null when there is no such process.
 * A pid alone would let us end a stranger after a reboot.
 */
export function identityOf(pid: number): string | null {
  if (!isRunning(pid)) return null;
  try {
    if (process.platform === "linux") {
      const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
      return `${boot}:${statFields(pid)[START_TIME_FIELD]}`;
    }
    return execFileSync("ps", ["-o", "lstart=", "-p", String(pid)], { encoding: "utf8" }).trim();
  } catch {
    return null; // It ended while we looked.
  }
}

/** The command line of a process, its arguments joined by spaces; empty when it can't be read. */
export function commandLineOf(pid: number): string {
  try {
    if (process.platform === "linux") {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
    }
    return execFileSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" }).trim();
  } catch {
    return "";
  }
}

/** Ends a process that isn't our child: the signal first, then SIGKILL; returns when it is gone. */
export async function endProcess(
  pid: number,
  { signal, graceMs }: { signal: NodeJS.Signals; graceMs: number },
): Promise<void> {
  sendSignal(pid, signal);
  if (await isGoneWithin(pid, graceMs)) return;

  sendSignal(pid, "SIGKILL");
  await isGoneWithin(pid, STOP_GRACE_MS);
}

async function isGoneWithin(pid: number, timeoutMs: number): Promise<boolean> {
  const end = Date.now() + timeoutMs;
  while (isRunning(pid)) {
    if (Date.now() > end) return false;
    await delay(LOOK_AGAIN_MS);
  }
  return true;
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Gone already, or not ours: isGoneWithin tells the difference.
  }
}

// proc(5): fields 3 (state) and 22 (start time), counted from the one after the command's closing parenthesis.
const STATE_FIELD = 0;
const START_TIME_FIELD = 19;

function statFields(pid: number): string[] {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

// A container whose first process doesn't reap keeps dead orphans in the table for ever.
function isZombie(pid: number): boolean {
  if (process.platform !== "linux") return false;
  try {
    return statFields(pid)[STATE_FIELD] === "Z";
  } catch {
    return true;
  }
}

function openLog(file: string): number {
  mkdirSync(dirname(file), { recursive: true });
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > LOG_BYTES_MAX) {
    renameSync(file, `${file}.old`);
  }
  return openSync(file, "a", 0o600);
}

async function startFailure(child: ChildProcess, name: string): Promise<never> {
  const cause = await new Promise<Error>((resolve) => child.once("error", resolve));
  throw new Error(`${name} can't be started: ${cause.message}`, { cause });
}
