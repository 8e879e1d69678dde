import { setTimeout as delay } from "node:timers/promises";

/** Waits for so long, and no longer once it is aborted. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(Math.max(0, ms), undefined, { signal }).catch(() => undefined);
}
