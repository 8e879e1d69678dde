import { setTimeout as delay } from "node:timers/promises";
import { getAccount } from "../../src/database/account-queries.ts";
import { findPaymentByKey } from "../../src/database/payment-queries.ts";
import { outboxStatus } from "../../src/database/outbox-view-queries.ts";
import { DomainError } from "../../src/domain/errors.ts";
import type { PaymentRequest } from "../../src/client/parameters.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

jest.setTimeout(180_000);
const flow = useFlow();
const seed = Number(process.env["REMIT_TEST_SEED"] ?? Date.now() % 100_000);

/** Pays as a client should: whatever stays unknown is repeated with the same key. */
async function payUntilAnswered(one: PaymentRequest): Promise<string> {
  for (;;) {
    try {
      return (await flow().payments.pay(one)).paymentId;
    } catch (error) {
      if (!(error instanceof DomainError) || error.code !== "outcome_unknown") throw error;
    }
  }
}

beforeAll(async () => {
  const worker = await flow().startWorker();
  await openFundedAccounts(flow());
  await flow().kill(worker);
}, 120_000);

describe("kill -9 of the worker", () => {
  test(`six times amid sixty payments loses none and doubles none (seed ${seed})`, async () => {
    let state = seed;
    const random = (): number =>
      (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) / 2_147_483_648;
    const requests = Array.from({ length: 60 }, () => aRequest({ amount: "1.00" }));
    const paying = Promise.all(requests.map(payUntilAnswered));
    for (let kill = 0; kill < 6; kill += 1) {
      const worker = await flow().startWorker();
      await delay(random() * 1_500);
      await flow().kill(worker);
    }
    const worker = await flow().startWorker();
    await paying;
    await eventually(
      async () => {
        const found = await Promise.all(
          requests.map(
            async ({ key }) =>
              await findPaymentByKey(flow().database.app, { merchant: "default", key }),
          ),
        );
        expect(found.map((payment) => payment?.status)).toEqual(found.map(() => "settled"));
      },
      { timeoutMs: 60_000 },
    );
    await eventually(async () =>
      expect(await outboxStatus(flow().database.app)).toMatchObject({ pending: 0, dead: 0 }),
    );
    await expectInvariants(flow().database, 0);
    expect((await getAccount(flow().database.app, "shop"))?.postedMinor).toBe(6_000n);
    await flow().kill(worker, "SIGTERM");
    expect(worker.exitCode).toBe(0);
  });

  test("a request that no worker answers is unknown to its caller, and repeating its key makes one payment", async () => {
    const one = aRequest({ amount: "1.00" });
    await expect(flow().payments.pay(one, { deadlineMs: 1_500 })).rejects.toMatchObject({
      code: "outcome_unknown",
    });
    const worker = await flow().startWorker();
    await payUntilAnswered(one);
    const [rows] = await flow().database.admin<{ n: number }>(
      "SELECT count(*)::int AS n FROM remit.payments WHERE idempotency_key = $1",
      [one.key],
    );
    expect(rows?.n).toBe(1);
    await flow().kill(worker, "SIGTERM");
  });

  test("SIGTERM drains: what was accepted goes on with the next worker", async () => {
    const first = await flow().startWorker();
    const ids = await Promise.all(
      Array.from({ length: 10 }, async () => await payUntilAnswered(aRequest({ amount: "1.00" }))),
    );
    await flow().kill(first, "SIGTERM");
    expect(first.exitCode).toBe(0);
    const second = await flow().startWorker();
    await eventually(
      async () => {
        const [open] = await flow().database.admin<{ n: number }>(
          "SELECT count(*)::int AS n FROM remit.payments WHERE id = ANY ($1::uuid[]) AND status <> 'settled'",
          [ids],
        );
        expect(open?.n).toBe(0);
      },
      { timeoutMs: 30_000 },
    );
    await expectInvariants(flow().database, 0);
    await flow().kill(second, "SIGTERM");
  });
});
