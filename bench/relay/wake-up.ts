import { randomUUID } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { fingerprintOf } from "../../src/domain/fingerprint.ts";
import { createAccount } from "../../src/database/account-queries.ts";
import { verify } from "../../src/database/invariants.ts";
import { createOutboxListener, createOutboxNotifier } from "../../src/database/outbox-wake-up.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import { median } from "../load.ts";
import type { BenchOptions } from "../options.ts";
import type { Reporter } from "../report.ts";
import type { BenchDatabase, Scene } from "./scene.ts";

const WRITERS = 50;
/** Writers of both kinds take turns within a round, too: what else the machine does, and how far the table has grown, meets both. */
const TURNS_A_ROUND = 4;
const SECONDS_A_TURN = 1.5;
/** Enough that writers hardly wait for each other's account. */
const PAYERS = 500;
const OVERDRAFT_MINOR = 10n ** 15n;

/** What the wake-up costs those who write: payments recorded by many at once, with and without a hint after each commit. */
export async function measureWakeUp(
  scene: Scene,
  { rounds }: BenchOptions,
  reporter: Reporter,
): Promise<void> {
  const database = await scene.openDatabase({ poolMax: WRITERS });
  const listener = createOutboxListener({
    databaseUrl: database.url,
    onStateChange: () => undefined,
  });
  try {
    await openAccounts(database);
    const { notify } = createOutboxNotifier(database.app.pool);
    const silent = (): void => undefined;
    await write(database, notify);
    const perSecond: { silent: number; notifying: number }[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const rates = { silent: 0, notifying: 0 };
      for (let turn = 0; turn < TURNS_A_ROUND; turn += 1) {
        const order =
          turn % 2 === 0 ? (["silent", "notifying"] as const) : (["notifying", "silent"] as const);
        for (const kind of order) {
          rates[kind] +=
            (await write(database, kind === "silent" ? silent : notify)) / TURNS_A_ROUND;
        }
      }
      perSecond.push(rates);
    }
    const { ok } = await verify(database.app, { graceSeconds: 3_600 });
    if (!ok) throw new Error("remit verify found a broken invariant after the run");
    reporter.figure({
      name: "wakeup.writer_slowdown",
      unit: "%",
      rounds: perSecond.map((rate) => 100 * (1 - rate.notifying / rate.silent)),
      target: { atMost: 5 },
      details: {
        writers: WRITERS,
        silentPerSecond: Math.round(median(perSecond.map((rate) => rate.silent))),
        notifyingPerSecond: Math.round(median(perSecond.map((rate) => rate.notifying))),
      },
    });
  } finally {
    await listener.close();
    await database.close();
  }
}

/** Keeps all writers busy for a turn; answers payments a second. */
async function write({ app }: BenchDatabase, notify: () => void): Promise<number> {
  const since = performance.now();
  let written = 0;
  const writer = async (): Promise<void> => {
    while (performance.now() - since < SECONDS_A_TURN * 1_000) {
      const { outcome } = await recordPayment(app, aPayment());
      if (outcome !== "recorded") throw new Error(`a payment was ${outcome}`);
      notify();
      written += 1;
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
  return written / ((performance.now() - since) / 1_000);
}

async function openAccounts({ app }: BenchDatabase): Promise<void> {
  await createAccount(app, account("shop", "merchant"));
  for (let payer = 0; payer < PAYERS; payer += 1) {
    await createAccount(app, account(`payer-${payer}`, "customer"));
  }
}

function account(
  accountId: string,
  kind: "customer" | "merchant",
): Parameters<typeof createAccount>[1] {
  return { accountId, currency: "EUR", kind, overdraftMinor: OVERDRAFT_MINOR };
}

function aPayment(): PaymentInput {
  const parameters = {
    merchant: "default",
    idempotencyKey: randomUUID(),
    source: `payer-${Math.floor(Math.random() * PAYERS)}`,
    destination: "shop",
    amountMinor: "1250",
    currency: "EUR",
    capture: "automatic" as const,
    description: null,
  };
  return {
    ...parameters,
    paymentId: uuidv7(),
    requestId: randomUUID(),
    fingerprint: fingerprintOf(parameters),
    notAfter: new Date(Date.now() + 60_000).toISOString(),
  };
}
