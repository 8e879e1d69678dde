import { setTimeout as delay } from "node:timers/promises";

/** What the newest look found; null where it failed, or where none has ended for too long. */
export interface Kept<Found> {
  readonly found: Found | null;
  /** How long the newest look that ended took; null before the first. */
  readonly tookMs: number | null;
}

export interface LookOptions {
  /** From the end of one look to the start of the next at least. */
  readonly restMsMin: number;
  /** Longest that a reader waits for a look that runs; after it he gets what was found before. */
  readonly waitMsMax: number;
}

/** A look costs at most an eleventh of the time, however slow it has become. */
const REST_PER_LOOK = 10;
/** One that failed took its time-out as a rule, and the next one may be well: it is tried sooner. */
const REST_PER_FAILURE = 2;
/** What was found is told for so long while a slower look runs; a figure that is older misleads. */
const KEPT_MS_MAX = 120_000;

/**
 * Looks when somebody asks, never twice at a time, and not again before a rest: any number of scrapers cost no more than
 * one. A failed look leaves nothing to tell.
 */
export function keptLook<Found>(
  look: () => Promise<Found>,
  { restMsMin, waitMsMax }: LookOptions,
): () => Promise<Kept<Found>> {
  let found: { readonly value: Found; readonly atMs: number } | null = null;
  let tookMs: number | null = null;
  let running: Promise<void> | null = null;
  let dueAtMs = 0;

  async function run(): Promise<void> {
    const since = performance.now();
    try {
      found = { value: await look(), atMs: performance.now() };
    } catch {
      found = null;
    }
    tookMs = performance.now() - since;
    const rest = found === null ? REST_PER_FAILURE : REST_PER_LOOK;
    dueAtMs = performance.now() + Math.max(restMsMin, rest * tookMs);
    running = null;
  }

  return async () => {
    if (running === null && performance.now() >= dueAtMs) running = run();
    if (running !== null) await inTime(running, waitMsMax);
    const isFresh = found !== null && performance.now() - found.atMs <= KEPT_MS_MAX;
    return { found: isFresh ? (found?.value ?? null) : null, tookMs };
  };
}

async function inTime(work: Promise<void>, ms: number): Promise<void> {
  const over = new AbortController();
  const late = delay(ms, undefined, { signal: over.signal, ref: false }).catch(() => undefined);
  await Promise.race([work, late]);
  over.abort();
}
