import { verify } from "../src/database/invariants.ts";
import type { Scope } from "../src/database/invariant-scope.ts";
import { ACCOUNTS, RECENT_PAYMENTS, filled } from "./history.ts";
import type { BenchOptions } from "./options.ts";
import { startScene } from "./relay/scene.ts";
import type { BenchDatabase } from "./relay/scene.ts";
import type { Reporter } from "./report.ts";

/** What a look every five minutes covers. */
const RECENT_SECONDS = 900;

/** How long `remit verify` takes over a long history, and a look at what is recent beside it and without a history. */
export async function runVerifySuite(options: BenchOptions, reporter: Reporter): Promise<void> {
  const scene = await startScene();
  try {
    const recent: Scope = { kind: "recent", seconds: RECENT_SECONDS };
    const young = await filled(await scene.openDatabase(), { payments: RECENT_PAYMENTS });
    const long = await filled(await scene.openDatabase(), { payments: options.payments });
    const rounds: { full: number; recent: number; young: number }[] = [];
    for (let round = 0; round < options.rounds; round += 1) {
      rounds.push({
        full: await secondsOf(long, { kind: "full" }),
        recent: await secondsOf(long, recent),
        young: await secondsOf(young, recent),
      });
    }
    reporter.figure({
      name: "verify.full",
      unit: "s",
      rounds: rounds.map(({ full }) => full),
      details: { payments: options.payments, accounts: ACCOUNTS },
    });
    reporter.figure({
      name: "verify.recent_vs_full",
      unit: "ratio",
      rounds: rounds.map((round) => round.recent / round.full),
      details: { recentPayments: RECENT_PAYMENTS },
    });
    reporter.figure({
      name: "verify.recent_with_vs_without_history",
      unit: "ratio",
      rounds: rounds.map((round) => round.recent / round.young),
    });
  } finally {
    await scene.close();
  }
}

async function secondsOf({ app }: BenchDatabase, scope: Scope): Promise<number> {
  const since = performance.now();
  const { ok, invariants } = await verify(app, { graceSeconds: 60, scope });
  const broken = invariants.filter((invariant) => !invariant.ok);
  if (!ok) throw new Error(`the books of the bench are broken: ${JSON.stringify(broken)}`);
  return (performance.now() - since) / 1_000;
}
