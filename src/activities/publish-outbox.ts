import { setTimeout as delay } from "node:timers/promises";
import { cursorAtStart } from "../database/outbox-queries.ts";
import type { ClaimCursor } from "../database/outbox-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { claimBatch, claimSuspectBatch, sendBatch } from "./publish-outbox-batch.ts";
import type { BatchDependencies, ClaimedBatch, SentBatch } from "./publish-outbox-batch.ts";
import { RelayProgress } from "./relay-progress.ts";
import type { PublishOutboxSummary, RelayReport } from "./relay-progress.ts";

export interface PublishOutboxInput {
  readonly fromShard: number;
  readonly toShard: number;
  readonly windowMs: number;
  /** Null: as fast as the broker takes them. */
  readonly eventsPerSecondMax: number | null;
}

export interface PublishOutboxDependencies extends BatchDependencies {
  /** Starts to watch the outbox; `wait` ends at a notification since then, the poll interval, or the signal. */
  watchOutbox(): { wait(signal: AbortSignal): Promise<void> };
  readonly heartbeat: (summary: PublishOutboxSummary) => void;
  readonly report: RelayReport;
  readonly signal: AbortSignal;
}

/** A window ends early after this many events, so that the Web UI reads as a log of progress. */
const WINDOW_EVENTS_MAX = 5_000;
const HEARTBEAT_INTERVAL_MS = 1_000;
const BATCH_ROWS_MAX = 100;
/** While one batch is sent and one is marked, the next is claimed. */
const BATCHES_IN_FLIGHT_MAX = 3;
/** What asks whether the broker is back: one call. */
const PROBE_ROWS_MAX = 10;
/** With a rate, a batch is what goes out in this part of a second, so that the rate is held within a second, too. */
const RATE_SLICES_PER_SECOND = 5;

/**
 * Publishes what is due in a shard range until the window ends or it is cancelled; it ends in order when its batches
 * have. Run twice at once (a frozen worker that wakes up), the leases keep the two apart.
 */
export async function publishOutbox(
  dependencies: PublishOutboxDependencies,
  input: PublishOutboxInput,
): Promise<PublishOutboxSummary> {
  const { heartbeat, report, signal } = dependencies;
  const progress = new RelayProgress(report);
  const pipeline = new Pipeline(dependencies, input, progress);
  const beat = setInterval(() => heartbeat(progress.summary()), HEARTBEAT_INTERVAL_MS);
  const endsAt = Date.now() + input.windowMs;
  const mayGoOn = (): boolean =>
    Date.now() < endsAt && !signal.aborted && progress.published < WINDOW_EVENTS_MAX;
  try {
    while (mayGoOn()) await pipeline.step();
    await pipeline.drain();
    return progress.summary();
  } finally {
    clearInterval(beat);
  }
}

/** Batches of one window on their way, and where the next claim looks. */
class Pipeline {
  readonly #dependencies: PublishOutboxDependencies;
  readonly #input: PublishOutboxInput;
  readonly #progress: RelayProgress;
  readonly #inFlight = new Set<Promise<boolean>>();
  #cursor: ClaimCursor;
  /** When the rate lets the next batch go, ms since the epoch. */
  #dueAt = 0;
  #failure: { readonly error: unknown } | null = null;

  constructor(
    dependencies: PublishOutboxDependencies,
    input: PublishOutboxInput,
    progress: RelayProgress,
  ) {
    this.#dependencies = dependencies;
    this.#input = input;
    this.#progress = progress;
    this.#cursor = cursorAtStart(input.fromShard);
  }

  /** Claims once and lets the batch go; waits where there is nothing to claim, or no room, or nobody who takes it. */
  async step(): Promise<void> {
    const { signal } = this.#dependencies;
    if (this.#progress.isInOutage) {
      await this.drain();
      await pause(this.#progress.backoffMs(), signal);
    }
    await pause(this.#dueAt - Date.now(), signal);
    while (this.#inFlight.size >= BATCHES_IN_FLIGHT_MAX) await Promise.race(this.#inFlight);
    this.#throwFailure();
    if (signal.aborted) return;
    await this.#claimAndSend();
  }

  /** Resolves when every batch on its way has its results. */
  async drain(): Promise<void> {
    await Promise.all(this.#inFlight);
    this.#throwFailure();
  }

  async #claimAndSend(): Promise<void> {
    const { fromShard } = this.#input;
    const watch = this.#dependencies.watchOutbox();
    const isWholeRange = this.#cursor.shard === fromShard && this.#cursor.aggregateType === "";
    const ahead = [...this.#inFlight];
    const cursor = this.#cursor;
    const batch = await this.#claim();
    if (batch === null) return;
    this.#cursor = batch.next ?? cursorAtStart(fromShard);
    const isAll = isWholeRange && batch.isWhole && !batch.hasSuspects;
    if (batch.rows.length === 0) {
      if (batch.hasSuspects) await this.#sendSuspect(cursor);
      else if (isAll) await this.#wait(watch, ahead);
      return;
    }
    const sent = this.#send(batch);
    this.#inFlight.add(sent);
    void sent.finally(() => this.#inFlight.delete(sent));
    if (this.#progress.isInOutage) await sent;
    else if (batch.hasSuspects) await this.#sendSuspect(cursor);
    // A claim that took all leaves nothing for the next one, unless a batch ahead of it held back followers.
    else if (isAll && ahead.length === 0) await this.#wait(watch, [failureOf(sent)]);
  }

  async #claim(): Promise<ClaimedBatch | null> {
    const { eventsPerSecondMax, ...range } = this.#input;
    const rate = eventsPerSecondMax ?? Number.POSITIVE_INFINITY;
    const rowsMax = Math.min(
      this.#progress.isInOutage ? PROBE_ROWS_MAX : BATCH_ROWS_MAX,
      Math.max(1, Math.floor(rate / RATE_SLICES_PER_SECOND)),
    );
    try {
      const batch = await claimBatch(this.#dependencies, {
        ...range,
        cursor: this.#cursor,
        rowsMax,
      });
      const tookMs = (batch.rows.length / rate) * 1_000;
      this.#dueAt = Math.max(this.#dueAt, Date.now()) + tookMs;
      this.#progress.claimed();
      return batch;
    } catch (error) {
      this.#progress.addOutage("database", databaseOutage(error));
      return null;
    }
  }

  /** With nothing else in flight, so that nothing else is under suspicion for it. */
  async #sendSuspect(cursor: ClaimCursor): Promise<void> {
    const { fromShard, toShard } = this.#input;
    await this.drain();
    if (this.#dependencies.signal.aborted) return;
    try {
      const range = { fromShard, toShard, cursor };
      const batch = await claimSuspectBatch(this.#dependencies, range);
      if (batch !== null) await this.#send(batch);
    } catch (error) {
      this.#progress.addOutage("database", databaseOutage(error));
    }
  }

  /** Answers whether every row went out. Never rejects: what isn't an outage ends the window. */
  async #send(batch: SentBatch): Promise<boolean> {
    try {
      const result = await sendBatch(this.#dependencies, batch);
      this.#progress.add(result);
      return result.marked.length === batch.rows.length;
    } catch (error) {
      try {
        this.#progress.addOutage("database", databaseOutage(error));
      } catch {
        this.#failure ??= { error };
      }
      return false;
    }
  }

  /** Until there may be something: a new event, the end of a batch that matters, the poll interval. */
  async #wait(
    watch: { wait(signal: AbortSignal): Promise<void> },
    batches: readonly Promise<unknown>[],
  ): Promise<void> {
    const { signal } = this.#dependencies;
    const over = new AbortController();
    await Promise.race([watch.wait(AbortSignal.any([signal, over.signal])), ...batches]);
    over.abort();
  }

  #throwFailure(): void {
    if (this.#failure !== null) throw this.#failure.error;
  }
}

/** Resolves where not every row of a batch went out, and never where all did. */
async function failureOf(sent: Promise<boolean>): Promise<void> {
  if (await sent) await new Promise(() => undefined);
}

/** PostgreSQL away is an outage like any other: what was claimed comes back when its lease ends. */
function databaseOutage(error: unknown): string {
  if (error instanceof DomainError && error.code === "database_unreachable") return error.message;
  throw error;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms <= 0) return;
  await delay(ms, undefined, { signal }).catch(() => undefined);
}
