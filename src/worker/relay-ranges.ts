import { workflowIds } from "../domain/ids.ts";
import type { RelayRange } from "../domain/ids.ts";
import type { RelayState } from "../workflows/messages.ts";
import type { RelayStarts } from "./relay-starts.ts";

const SHARDS = 64;

/** Cuts the 64 shards into so many ranges, each with a relay of its own. */
export function shardRanges(count: number): RelayRange[] {
  return Array.from({ length: count }, (_, index) => ({
    fromShard: Math.floor((index * SHARDS) / count),
    toShard: Math.floor(((index + 1) * SHARDS) / count) - 1,
  }));
}

/**
 * Starts the relays that don't run and drains those of another cut of the shards; answers how many there should be. A new
 * one takes over pause and rate of the old one that it replaces. While both run, the leases keep them apart. Run twice, the
 * second time finds nothing to do.
 */
export async function startRelays(starts: RelayStarts, count: number): Promise<number> {
  const ranges = shardRanges(count);
  const running = await starts.runningRelays();
  const isOurs = (range: RelayRange): boolean => ranges.some((ours) => isSame(ours, range));
  const others = running.filter((range) => !isOurs(range));
  for (const range of ranges) {
    const isRunning = running.some((found) => isSame(found, range));
    const before = isRunning ? undefined : others.find((other) => overlaps(other, range));
    const state = before === undefined ? null : inherited(await starts.relayState(before));
    await starts.startRelay(range, state);
  }
  for (const other of others) await starts.drainRelay(other);
  return ranges.length;
}

function inherited(state: RelayState): RelayState | null {
  if (state.mode !== "paused" && state.eventsPerSecondMax === null) return null;
  const mode = state.mode === "paused" ? "paused" : "running";
  return { ...state, mode, published: 0, lostLeases: 0 };
}

function isSame(left: RelayRange, right: RelayRange): boolean {
  return workflowIds.outboxRelay(left) === workflowIds.outboxRelay(right);
}

function overlaps(left: RelayRange, right: RelayRange): boolean {
  return left.fromShard <= right.toShard && right.fromShard <= left.toShard;
}
