import { randomUUID } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../src/activities/record-payment.ts";
import type { Database } from "../src/database/database.ts";
import { verify } from "../src/database/invariants.ts";
import { fingerprintOf } from "../src/domain/fingerprint.ts";
import type { PaymentParameters } from "../src/domain/payment.ts";
import { ACCOUNTS, RECENT_PAYMENTS, filled } from "./history.ts";
import { closedLoop } from "./load.ts";
import type { BenchOptions } from "./options.ts";
import { startScene } from "./relay/scene.ts";
import type { BenchDatabase } from "./relay/scene.ts";
import type { Figure, Reporter } from "./report.ts";

/** As many as a worker's pool lets through. */
const IN_FLIGHT = 8;
const PAYMENTS_A_ROUND = 1_500;

/** Recording and booking, the two transactions of a payment, as the tables grow and as accounts are shared. */
export async function runGrowthSuite(
  { rounds, payments: history }: BenchOptions,
  reporter: Reporter,
): Promise<void> {
  const scene = await startScene();
  try {
    const young = await filled(await scene.openDatabase(), { payments: RECENT_PAYMENTS });
    const long = await filled(await scene.openDatabase(), { payments: history });
    await perSecond(young, spread);
    await perSecond(long, spread);
    const rates: { young: number; long: number; hundred: number; one: number }[] = [];
    for (let round = 0; round < rounds; round += 1) {
      rates.push({
        young: await perSecond(young, spread),
        long: await perSecond(long, spread),
        hundred: await perSecond(young, toOneOf(100)),
        one: await perSecond(young, toOneOf(1)),
      });
    }
    await closeTheBooks(young.app);
    await closeTheBooks(long.app);
    const figure = (name: string, rate: (of: (typeof rates)[number]) => number): Figure => ({
      name,
      unit: "ratio",
      rounds: rates.map((of) => rate(of) / of.young),
      details: { inFlight: IN_FLIGHT, perSecond: rates.at(-1)?.young ?? 0, payments: history },
    });
    reporter.figure({
      ...figure("growth.rate_with_history_vs_without", ({ long: rate }) => rate),
      target: { atLeast: 0.9 },
    });
    reporter.figure(figure("growth.rate_to_100_accounts_vs_spread", ({ hundred }) => hundred));
    reporter.figure({
      ...figure("growth.rate_to_1_account_vs_spread", ({ one }) => one),
      target: { atLeast: 0.5 },
    });
  } finally {
    await scene.close();
  }
}

/** Who receives the nth payment; its payer is always one of its own. */
type Destination = (nth: number) => number;

const spread: Destination = (nth) => nth + ACCOUNTS / 2;
const toOneOf =
  (count: number): Destination =>
  (nth) =>
    ACCOUNTS / 2 + (nth % count);

/** Goes on where the last round ended, so that no payer comes twice before all have paid. */
let payer = 0;

async function perSecond({ app }: BenchDatabase, destination: Destination): Promise<number> {
  const work = async (): Promise<void> => {
    payer = (payer + 1) % (ACCOUNTS / 2);
    await payAndBook(app, { source: `a${payer}`, destination: `a${destination(payer)}` });
  };
  return await closedLoop(work, { inFlight: IN_FLIGHT, count: PAYMENTS_A_ROUND });
}

async function payAndBook(
  database: Database,
  accounts: { source: string; destination: string },
): Promise<void> {
  const parameters: PaymentParameters = {
    ...accounts,
    merchant: "default",
    idempotencyKey: randomUUID(),
    amountMinor: "1",
    currency: "EUR",
    capture: "automatic",
    description: null,
  };
  const result = await recordPayment(database, {
    ...parameters,
    paymentId: uuidv7(),
    requestId: randomUUID(),
    fingerprint: fingerprintOf(parameters),
    notAfter: new Date(Date.now() + 60_000).toISOString(),
  });
  if (result.outcome !== "recorded" || result.messageId === undefined) {
    throw new Error(`a payment of the bench is ${result.outcome}`);
  }
  const { messageId } = result;
  const { outcome } = await applyLedgerEntries(database, {
    messageId,
    type: "payment.created",
    payload: JSON.stringify({ specversion: "1.0", id: messageId, type: "payment.created" }),
  });
  if (outcome !== "booked") throw new Error(`a payment of the bench is ${outcome}`);
}

/** A figure counts only if the books are right after it. */
async function closeTheBooks(database: Database): Promise<void> {
  const { invariants } = await verify(database, { graceSeconds: 3_600 });
  const broken = invariants.filter(({ ok }) => !ok);
  if (broken.length > 0) throw new Error(`the books are broken: ${JSON.stringify(broken)}`);
}
