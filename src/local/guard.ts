import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inheritedEnvironment } from "./environment.ts";
import { endProcess, identityOf } from "./processes.ts";
import type { ChildProcess } from "node:child_process";
import type { Guard } from "./processes.ts";

/** What the guard's own process is told, a line of JSON each. */
export type GuardMessage =
  { readonly add: GuardedProcess } | { readonly remove: number } | { readonly done: true };

export interface GuardedProcess {
  readonly name: string;
  readonly pid: number;
  readonly identity: string;
  readonly signal: NodeJS.Signals;
}

export interface StartedGuard extends Guard {
  readonly pid: () => number;
  /** Call it when all guarded processes have ended. */
  readonly close: () => Promise<void>;
}

const LEFTOVER_GRACE_MS = 3_000;

/**
 * Sees to it that no process outlives this one, even when this one is killed with -9: a small detached process holds the
 * other end of a pipe and ends what it was told about when the pipe closes. The records in `recordsDir` are the
 * second net: the next start ends what they name, if the guard was killed as well.
 */
export function startGuard({
  recordsDir,
  removeDirAtDeath,
}: {
  recordsDir: string;
  /** A temporary folder that goes with the processes in it. */
  removeDirAtDeath?: string;
}): StartedGuard {
  mkdirSync(recordsDir, { recursive: true });
  const guarded = new Map<number, GuardedProcess>();
  let closing = false;
  let child = spawnGuard();

  function spawnGuard(): ChildProcess {
    const script = join(import.meta.dirname, "guard-main.ts");
    const args = removeDirAtDeath === undefined ? [script] : [script, removeDirAtDeath];
    const started = spawn(process.execPath, args, {
      detached: true,
      env: inheritedEnvironment(),
      stdio: ["pipe", "ignore", "ignore"],
    });
    started.stdin?.on("error", () => undefined); // EPIPE: the exit handler starts another one.
    started.once("exit", () => {
      if (closing) return;
      child = spawnGuard();
      for (const entry of guarded.values()) tell({ add: entry });
    });
    // Without a guard the records still let the next start clean up.
    started.once("error", () => undefined);
    started.unref();
    return started;
  }
  function tell(message: GuardMessage): void {
    child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  return {
    pid: () => child.pid ?? 0,
    add({ name, pid, signal }) {
      const identity = identityOf(pid);
      if (identity === null) return;
      const entry = { name, pid, identity, signal };
      writeFileSync(join(recordsDir, `${pid}.json`), JSON.stringify(entry));
      guarded.set(pid, entry);
      tell({ add: entry });
    },
    remove(pid) {
      guarded.delete(pid);
      rmSync(join(recordsDir, `${pid}.json`), { force: true });
      tell({ remove: pid });
    },
    async close() {
      closing = true;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.ref();
      tell({ done: true });
      child.stdin?.end();
      await ended;
    },
  };
}

/** Ends what an earlier run left behind, by its records; returns the names of what was found running. */
export async function endLeftovers(recordsDir: string): Promise<string[]> {
  mkdirSync(recordsDir, { recursive: true });
  const entries = readdirSync(recordsDir).flatMap((file) => {
    const entry = readRecord(join(recordsDir, file));
    if (entry === null) rmSync(join(recordsDir, file), { force: true });
    return entry ?? [];
  });
  const running = entries.filter((entry) => identityOf(entry.pid) === entry.identity);
  await Promise.all(
    running.map(
      async ({ pid, signal }) => await endProcess(pid, { signal, graceMs: LEFTOVER_GRACE_MS }),
    ),
  );
  for (const { pid } of entries) rmSync(join(recordsDir, `${pid}.json`), { force: true });
  return running.map(({ name }) => name);
}

// A record that was cut short by a crash names nothing.
function readRecord(file: string): GuardedProcess | null {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as GuardedProcess;
  } catch {
    return null;
  }
}
