import { setTimeout as delay } from "node:timers/promises";
import { readStackFile } from "../config/stack-file.ts";
import { DomainError } from "../domain/errors.ts";
import { emptyDataDir, lockDataDir, openDataDir } from "./data-dir.ts";
import { INTERRUPTED, interruptions } from "./interruption.ts";
import { startStack } from "./stack.ts";
import type { DataDir } from "./data-dir.ts";
import type { Interruption } from "./interruption.ts";
import type { Log } from "./processes.ts";
import type { Stack } from "./stack.ts";

export interface OwnStackOptions {
  readonly directory: string;
  /** Forget what an earlier run left in the folder. */
  readonly fresh: boolean;
  readonly print: Log;
}

export interface OwnStack {
  readonly stack: Stack;
  readonly tookMs: number;
  readonly interruption: Interruption;
}

/**
 * Starts a stack in a folder, lets somebody use it, and stops it in order, whatever happened; answers the exit code.
 * @throws DomainError `already_running` where the folder has a stack
 */
export async function withOwnStack(
  { directory, fresh, print }: OwnStackOptions,
  use: (own: OwnStack) => Promise<number>,
): Promise<number> {
  const dataDir = openDataDir(directory);
  const lock = lockDataDir(dataDir);
  if (lock === null) throw alreadyRunning(dataDir);

  const interruption = interruptions();
  try {
    if (fresh) emptyDataDir(dataDir);
    const started = await startUnlessInterrupted({ dataDir, print, interruption });
    if (started === null) return INTERRUPTED;

    try {
      return await use({ ...started, interruption });
    } finally {
      print("\nstopping: worker, broker, temporal, postgres");
      await started.stack.stop();
      print("stopped");
    }
  } finally {
    lock.release();
    interruption.dispose();
  }
}

async function startUnlessInterrupted({
  dataDir,
  print,
  interruption: { signal, happened },
}: {
  dataDir: DataDir;
  print: Log;
  interruption: Interruption;
}): Promise<Omit<OwnStack, "interruption"> | null> {
  print(`remit dev · ${dataDir.path}`);
  const onStep = (name: string, tookMs: number): void =>
    print(`  ✓ ${name.padEnd(NAME_WIDTH)} ${(tookMs / 1_000).toFixed(1)} s`);
  const since = performance.now();
  const starting = startStack({ dataDir, env: process.env, log: print, onStep, signal });
  try {
    const stack = await Promise.race([
      starting,
      happened.then(async () => await delay(ABORT_MS_MAX)),
    ]);
    // A download can't be aborted; the guard ends the servers as soon as this process is gone.
    if (stack === undefined) process.exit(INTERRUPTED);
    return { stack, tookMs: performance.now() - since };
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  }
}

const ABORT_MS_MAX = 20_000;
const NAME_WIDTH = 40;

function alreadyRunning({ path, stackFile }: DataDir): DomainError {
  const stack = readStackFile(stackFile);
  const where =
    stack === null
      ? "it is just starting or stopping"
      : `process ${stack.pid}, Web UI ${stack.temporalUiUrl}`;
  return new DomainError(
    "already_running",
    `remit dev runs already in ${path}: ${where}; use that one, stop it, or choose another --data-dir`,
    { details: stack === null ? {} : { pid: stack.pid, temporalUiUrl: stack.temporalUiUrl } },
  );
}
