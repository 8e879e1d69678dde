import { spawn } from "node:child_process";
import { DomainError } from "../domain/errors.ts";
import { commandLineOf, isRunning } from "../local/processes.ts";
import type { Stage } from "./demo-stage.ts";
import { eventually } from "./story.ts";

/** Freezes and kills processes of the embedded stack, and of nobody else. */

export interface FrozenProcess {
  readonly pid: number;
  /** Lets it go on; a second call changes nothing. */
  readonly thaw: () => void;
}

/** Runs `work` while the broker stands still (SIGSTOP); it goes on afterwards, whatever happened to the demo. */
export async function whileBrokerIsFrozen<Result>(
  stage: Stage,
  work: (broker: FrozenProcess) => Promise<Result>,
): Promise<Result> {
  const pid = pidOf(stage, "broker");
  const release = thawAtOurEnd(pid);
  process.kill(pid, "SIGSTOP");
  const thaw = (): void => {
    signal(pid, "SIGCONT");
    release();
  };
  return await stage.undo.after(thaw, async () => await work({ pid, thaw }));
}

/**
 * A shell that waits for the end of our pipe and wakes the process then: it ends however we do, also by a kill -9, and
 * a broker that nobody wakes would stop every payment of this stack.
 */
function thawAtOurEnd(pid: number): () => void {
  const waiter = spawn("/bin/sh", ["-c", 'read -r _; kill -CONT "$1"', "sh", String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  waiter.on("error", () => undefined);
  waiter.stdin.on("error", () => undefined);
  waiter.unref();
  return () => {
    waiter.stdin.end();
  };
}

/** `kill -9` of the worker; nothing of it runs any more when this answers. Answers its process id. */
export async function killWorker(stage: Stage): Promise<number> {
  const pid = pidOf(stage, "worker");
  process.kill(pid, "SIGKILL");
  await eventually("the killed worker is gone", () => Promise.resolve(isRunning(pid) ? null : pid));
  return pid;
}

/** The worker that the stack started in place of another one. */
export async function workerAfter(stage: Stage, pid: number): Promise<number> {
  return await eventually("the stack starts the worker again", () => {
    const next = stage.processes().find(({ name }) => name === "worker")?.pid;
    return Promise.resolve(next === undefined || next === pid ? null : next);
  });
}

/** A stale file could name a process id that is somebody else's by now. */
function pidOf(stage: Stage, name: keyof typeof PROGRAMS): number {
  const found = stage.processes().find((entry) => entry.name === name);
  if (found !== undefined && commandLineOf(found.pid).includes(PROGRAMS[name])) return found.pid;
  throw new DomainError(
    "usage",
    `expected the stack's ${name} as stack.json names it, found ${found?.pid ?? "none"}: is it just starting again?`,
  );
}

const PROGRAMS = { broker: "broker-main.ts", worker: "worker/main.ts" } as const;

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended meanwhile, and the stack has started another one, which nobody froze.
  }
}
