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
 * one takes over pause and rate of an old one that it replaces. While both run, the leases keep them apart. Run twice, the
 * second time finds nothing to do. Temporal lists a run a moment after its start, so a relay that was started and paused
 * seconds before this can be missed, and its pause with it.
 */
export async function startRelays(starts: RelayStarts, count: number): Promise<number> {
  const ranges = shardRanges(count);
  const running = await starts.runningRelays();
  const isOurs = (range: RelayRange): boolean => ranges.some((ours) => isSame(ours, range));
  const others = running.filter((range) => !isOurs(range));
  for (const range of ranges) {
    const isRunning = running.some((found) => isSame(found, range));
    const before = isRunning ? [] : others.filter((other) => overlaps(other, range));
    await starts.startRelay(range, await inherited(starts, before));
  }
  for (const other of others) await starts.drainRelay(other);
  return ranges.length;
}

/** The first bound that an operator had set; a relay that drains already has none left to give. */
async function inherited(
  starts: RelayStarts,
  before: readonly RelayRange[],
): Promise<RelayState | null> {
  for (const range of before) {
    const state = await starts.relayState(range);
    if (state.mode !== "paused" && state.eventsPerSecondMax === null) continue;
    const mode = state.mode === "paused" ? "paused" : "running";
    return { ...state, mode, published: 0, lostLeases: 0 };
  }
  return null;
}

function isSame(left: RelayRange, right: RelayRange): boolean {
  return workflowIds.outboxRelay(left) === workflowIds.outboxRelay(right);
}

function overlaps(left: RelayRange, right: RelayRange): boolean {
  return left.fromShard <= right.toShard && right.fromShard <= left.toShard;
}
