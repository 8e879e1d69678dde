import { readFileSync, readdirSync } from "node:fs";

/** CPU time of the parts of a run so far, in ms; null where the system doesn't tell (anything but Linux). */
export interface CpuTimes {
  readonly relay: number;
  readonly postgres: number | null;
  readonly broker: number | null;
}

/** USER_HZ of every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

export function readCpu(pids: { postgres: number; broker: number }): CpuTimes {
  const { user, system } = process.cpuUsage();
  return {
    relay: (user + system) / 1_000,
    postgres: cpuOfTree(pids.postgres),
    broker: cpuOfTree(pids.broker),
  };
}

/** What was used between two readings. */
export function cpuBetween(before: CpuTimes, after: CpuTimes): CpuTimes {
  const difference = (from: number | null, to: number | null): number | null =>
    from === null || to === null ? null : to - from;
  return {
    relay: after.relay - before.relay,
    postgres: difference(before.postgres, after.postgres),
    broker: difference(before.broker, after.broker),
  };
}

/** CPU time of a process and its children so far, in ms; null where the system doesn't tell. */
export function cpuOfTree(root: number): number | null {
  return cpuOf(({ pid, parent }) => pid === root || parent === root);
}

function cpuOf(isMeant: (process: { pid: number; parent: number }) => boolean): number | null {
  if (process.platform !== "linux") return null;
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => statOf(Number(name)))
    .filter((stat) => stat !== null && isMeant(stat))
    .reduce((sum, stat) => sum + (stat?.cpuMs ?? 0), 0);
}

/** proc(5): after the command's closing parenthesis come state and parent; from the 12th on the times of the process and of its ended children. */
function statOf(pid: number): { pid: number; parent: number; cpuMs: number } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return { pid, parent: Number(fields[1]), cpuMs: (ticks * 1_000) / TICKS_PER_SECOND };
  } catch {
    return null; // It ended while we looked.
  }
}
