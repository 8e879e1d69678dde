import { setTimeout as delay } from "node:timers/promises";
import { cursorAtStart } from "../database/outbox-queries.ts";
import type { ClaimCursor } from "../database/outbox-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { publishOutboxBatch } from "./publish-outbox-batch.ts";
import type { BatchDependencies, BatchResult } from "./publish-outbox-batch.ts";

export interface PublishOutboxInput {
  readonly fromShard: number;
  readonly toShard: number;
  readonly windowMs: number;
  /** Null: as fast as the broker takes them. */
  readonly eventsPerSecondMax: number | null;
}

/** What one window did; also the heartbeat's details, so that the Web UI shows how the running one stands. */
export interface PublishOutboxSummary {
  readonly published: number;
  readonly failed: number;
  readonly lostLeases: number;
  readonly batches: number;
  /** Why the shard pauses by itself, and since when; null while the broker takes messages. */
  readonly outage: string | null;
  readonly outageSince: string | null;
}

export interface PublishOutboxDependencies extends BatchDependencies {
  /** Starts to watch the outbox; `wait` ends at a notification since then, the poll interval, or the signal. */
  watchOutbox(): { wait(signal: AbortSignal): Promise<void> };
  readonly heartbeat: (summary: PublishOutboxSummary) => void;
  readonly signal: AbortSignal;
}

/** A window ends early after this many events, so that the Web UI reads as a log of progress. */
const WINDOW_EVENTS_MAX = 5_000;
const HEARTBEAT_INTERVAL_MS = 1_000;
const BACKOFF_BASE_MS = 200;
const BACKOFF_CEILING_MS = 15_000;

/**
 * Publishes what is due in a shard range until the window ends or it is cancelled; it ends in order between two
 * batches. Run twice at once (a frozen worker that wakes up), the leases keep the two apart.
 */
export async function publishOutbox(
  dependencies: PublishOutboxDependencies,
  input: PublishOutboxInput,
): Promise<PublishOutboxSummary> {
  const { heartbeat, signal } = dependencies;
  const progress = new Progress();
  const beat = setInterval(() => heartbeat(progress.summary()), HEARTBEAT_INTERVAL_MS);
  try {
    const endsAt = Date.now() + input.windowMs;
    let cursor = cursorAtStart(input.fromShard);
    while (Date.now() < endsAt && !signal.aborted && progress.published < WINDOW_EVENTS_MAX) {
      cursor = await step(dependencies, { ...input, cursor }, progress);
    }
    return progress.summary();
  } finally {
    clearInterval(beat);
  }
}

async function step(
  dependencies: PublishOutboxDependencies,
  input: PublishOutboxInput & { cursor: ClaimCursor },
  progress: Progress,
): Promise<ClaimCursor> {
  const startedAt = Date.now();
  const watch = dependencies.watchOutbox();
  const result = await publishOutboxBatch(dependencies, input).catch(toOutage(input));
  progress.add(result);
  if (result.outage !== null) await pause(progress.backoffMs(), dependencies.signal);
  else if (result.claimed === 0 && isAtStart(input)) {
    await watch.wait(dependencies.signal);
  } else if (input.eventsPerSecondMax !== null) {
    const dueMs = (result.published / input.eventsPerSecondMax) * 1_000;
    await pause(startedAt + dueMs - Date.now(), dependencies.signal);
  }
  return result.cursor;
}

/** PostgreSQL away is an outage like any other: what was claimed comes back when its lease ends. */
function toOutage({ fromShard }: PublishOutboxInput): (error: unknown) => BatchResult {
  return (error) => {
    if (!(error instanceof DomainError) || error.code !== "database_unreachable") throw error;
    const outage = error.message;
    const cursor = cursorAtStart(fromShard);
    return { claimed: 0, published: 0, failed: 0, lostLeases: 0, outage, cursor };
  };
}

function isAtStart({ cursor, fromShard }: { cursor: ClaimCursor; fromShard: number }): boolean {
  return cursor.shard === fromShard && cursor.aggregateType === "";
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms <= 0) return;
  await delay(ms, undefined, { signal }).catch(() => undefined);
}

class Progress {
  published = 0;
  #failed = 0;
  #lostLeases = 0;
  #batches = 0;
  #outages = 0;
  #outage: string | null = null;
  #outageSince: string | null = null;

  add({ published, failed, lostLeases, claimed, outage }: BatchResult): void {
    this.published += published;
    this.#failed += failed;
    this.#lostLeases += lostLeases;
    if (claimed > 0) this.#batches += 1;
    this.#outages = outage === null ? 0 : this.#outages + 1;
    this.#outageSince = outage === null ? null : (this.#outageSince ?? new Date().toISOString());
    this.#outage = outage;
  }

  /** Full jitter, so that several shards don't return to a broker in step. */
  backoffMs(): number {
    const ceiling = Math.min(BACKOFF_BASE_MS * 2 ** this.#outages, BACKOFF_CEILING_MS);
    return BACKOFF_BASE_MS + Math.random() * ceiling;
  }

  summary(): PublishOutboxSummary {
    return {
      published: this.published,
      failed: this.#failed,
      lostLeases: this.#lostLeases,
      batches: this.#batches,
      outage: this.#outage,
      outageSince: this.#outageSince,
    };
  }
}
