import { setTimeout as delay } from "node:timers/promises";

/** Keeps `inFlight` runs of `work` going until `count` have ended; answers runs per second. */
export async function closedLoop(
  work: () => Promise<void>,
  { inFlight, count }: { inFlight: number; count: number },
): Promise<number> {
  let started = 0;
  const since = performance.now();
  const lane = async (): Promise<void> => {
    while (started < count) {
      started += 1;
      await work();
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  return count / ((performance.now() - since) / 1_000);
}

/** Starts `work` at a fixed rate whatever the answers take; answers the latencies in ms, measured from the due time. */
export async function openLoop(
  work: () => Promise<void>,
  { perSecond, count }: { perSecond: number; count: number },
): Promise<number[]> {
  const since = performance.now();
  return await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const dueAt = since + (index * 1_000) / perSecond;
      await delay(Math.max(0, dueAt - performance.now()));
      await work();
      return performance.now() - dueAt;
    }),
  );
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
