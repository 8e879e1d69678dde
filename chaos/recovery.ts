import { withClient } from "../src/local/postgres.ts";
import type { Asked } from "./oracle.ts";
import type { ChaosStack } from "./stack.ts";

/** A payment from the moment it was asked for until the books say that it is settled, in ms since the epoch. */
export interface Settled {
  readonly askedAtMs: number;
  readonly settledAtMs: number;
}

/** All of these payments that came to their end by themselves: one with manual capture waits for its client. */
export async function settledOf(
  { adminDatabaseUrl }: ChaosStack,
  asked: readonly Asked[],
): Promise<Settled[]> {
  const automatic = asked.filter(({ kind, isManual }) => kind === "pay" && !isManual);
  const { rows } = await withClient(
    adminDatabaseUrl,
    async (client) =>
      await client.query<{ key: string; settled: number }>(
        `SELECT idempotency_key AS key, extract(epoch FROM settled_at)::float8 * 1000 AS settled
           FROM remit.payments
          WHERE settled_at IS NOT NULL`,
      ),
  );
  const settledAt = new Map(rows.map(({ key, settled }) => [key, settled]));
  return automatic.flatMap(({ key, askedAtMs }) => {
    const settledAtMs = settledAt.get(key);
    return settledAtMs === undefined ? [] : [{ askedAtMs, settledAtMs }];
  });
}

/** From each fault to the end of the first payment that was asked for after it; the longest of them, in seconds. */
export function longestRecovery(
  settled: readonly Settled[],
  faultsAtMs: readonly number[],
): number {
  const recoveries = faultsAtMs.map((faultAtMs) => {
    const endedAtMs = settled.reduce(
      (first, { askedAtMs, settledAtMs }) =>
        askedAtMs >= faultAtMs && settledAtMs < first ? settledAtMs : first,
      Number.POSITIVE_INFINITY,
    );
    return Number.isFinite(endedAtMs) ? (endedAtMs - faultAtMs) / 1_000 : 0;
  });
  return Math.max(0, ...recoveries);
}
