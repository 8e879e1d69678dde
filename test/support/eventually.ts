import { setTimeout as delay } from "node:timers/promises";

const LOOK_EVERY_MS = 20;

/** Repeats an assertion until it holds; the last failure is thrown after `timeoutMs`. */
export async function eventually<Result>(
  check: () => Result | Promise<Result>,
  { timeoutMs = 15_000 }: { timeoutMs?: number } = {},
): Promise<Result> {
  const endsAt = Date.now() + timeoutMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() >= endsAt) throw error;
    }
    await delay(LOOK_EVERY_MS);
  }
}
