import { spawnSync } from "node:child_process";
import { mkdirSync, statfsSync } from "node:fs";

/** A small file system that can be full. */
export interface Disk {
  readonly path: string;
  /** It ends where its contents end. */
  readonly fill: () => void;
  readonly free: () => void;
}

/** What PostgreSQL keeps apart: the cluster with its write-ahead log, and Remit's tables. */
export interface Disks {
  readonly cluster: Disk;
  readonly tables: Disk;
}

/** Set where this process has mounts of its own. */
const OWN_MOUNTS = "CHAOS_OWN_MOUNTS";
/** Hidden in this process and its children only; nothing of it is left when the last of them has ended, however it ended. */
const MOUNT_POINT = "/mnt";
const SIZE = "1g";

/**
 * Runs this program again in a mount namespace of its own, in the same process, so that signals and guards find it. An
 * ordinary user gets one together with a user namespace, in which mounting is permitted.
 *
 * @returns why it can't be had; not at all where it was possible
 */
export function enterOwnMounts(): string | null {
  if (process.env[OWN_MOUNTS] !== undefined) return null;
  const asRoot = process.getuid?.() === 0 ? [] : ["--user", "--map-root-user"];
  const unshare = ["unshare", ...asRoot, "--mount", "--propagation", "private"];
  const problem = problemOf([...unshare, "mount", "-t", "tmpfs", "none", MOUNT_POINT]);
  if (problem !== null) return problem;
  if (process.execve === undefined) return "this Node can't replace a process";
  const command = [...unshare, process.execPath, ...process.argv.slice(1)];
  return process.execve("/usr/bin/env", ["env", ...command], {
    ...process.env,
    [OWN_MOUNTS]: "1",
  });
}

export function openDisks(): Disks {
  mount(["-t", "tmpfs", "none", MOUNT_POINT]);
  return { cluster: openDisk(`${MOUNT_POINT}/cluster`), tables: openDisk(`${MOUNT_POINT}/tables`) };
}

function openDisk(path: string): Disk {
  mkdirSync(path);
  mount(["-t", "tmpfs", "-o", `size=${SIZE}`, "none", path]);
  return {
    path,
    fill: () => {
      // Refused where something was written in between.
      for (let attempt = 1; ; attempt += 1) {
        const { blocks, bfree, bsize } = statfsSync(path);
        const size = (blocks - bfree) * bsize;
        const problem = problemOf(["mount", "-o", `remount,size=${size}`, "none", path]);
        if (problem === null) return;
        if (attempt === FILL_ATTEMPTS_MAX) throw new Error(problem);
      }
    },
    free: () => mount(["-o", `remount,size=${SIZE}`, "none", path]),
  };
}

const FILL_ATTEMPTS_MAX = 50;

function mount(args: readonly string[]): void {
  const problem = problemOf(["mount", ...args]);
  if (problem !== null) throw new Error(problem);
}

function problemOf([command = "", ...args]: readonly string[]): string | null {
  const { error, status, stderr } = spawnSync(command, args, { encoding: "utf8" });
  if (error !== undefined) return error.message;
  return status === 0 ? null : stderr.trim() || `${command} ended with ${status}`;
}
