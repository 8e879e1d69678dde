import { randomUUID } from "node:crypto";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { createAccount, getAccount } from "../../src/database/account-queries.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import { aPayment, expectInvariants, fundedAccount, useDatabase } from "../support/database.ts";

const database = useDatabase();

beforeAll(async () => {
  await fundedAccount(database(), "alice", { amountMinor: 100_000n });
  await fundedAccount(database(), "shop", { kind: "merchant" });
});
afterEach(async () => {
  await expectInvariants(database());
});

async function leftBy({ idempotencyKey }: PaymentInput): Promise<Record<string, number>> {
  const [counts] = await database().admin<Record<string, number>>(
    `SELECT (SELECT count(*) FROM remit.idempotency_keys WHERE key = $1)::int AS keys,
            (SELECT count(*) FROM remit.payments WHERE idempotency_key = $1)::int AS payments,
            (SELECT count(*) FROM remit.holds h JOIN remit.payments p ON p.id = h.payment_id WHERE p.idempotency_key = $1)::int AS holds,
            (SELECT count(*) FROM remit.outbox o JOIN remit.payments p ON p.id::text = o.aggregate_id WHERE p.idempotency_key = $1)::int AS events`,
    [idempotencyKey],
  );
  return counts ?? {};
}
const EVERYTHING_ONCE = { keys: 1, payments: 1, holds: 1, events: 1 };
const KEY_ONLY = { keys: 1, payments: 0, holds: 0, events: 0 };
const NOTHING = { keys: 0, payments: 0, holds: 0, events: 0 };

describe("recordPayment", () => {
  test("a new request writes key, payment, hold and event in one commit", async () => {
    const input = aPayment();
    const before = await getAccount(database().app, "alice");

    const result = await recordPayment(database().app, input);

    const after = await getAccount(database().app, "alice");
    expect(result).toMatchObject({
      outcome: "recorded",
      receipt: { paymentId: input.paymentId, requestId: input.requestId, status: "pending" },
    });
    expect(await leftBy(input)).toEqual(EVERYTHING_ONCE);
    expect((after?.heldMinor ?? 0n) - (before?.heldMinor ?? 0n)).toBe(1_250n);
    expect(after?.postedMinor).toBe(before?.postedMinor);
  });

  test("the same request run again is recorded again, as after a kill between commit and answer", async () => {
    const input = aPayment();
    const first = await recordPayment(database().app, input);
    const again = await recordPayment(database().app, input);
    const { messageId, ...answer } = first as typeof first & { messageId: string };
    expect(messageId).toMatch(/^[0-9a-f-]{36}$/);
    expect(again).toEqual(answer);
    expect(await leftBy(input)).toEqual(EVERYTHING_ONCE);
  });

  test("another request with the same key and parameters is repeated and gets the first receipt", async () => {
    const input = aPayment();
    await recordPayment(database().app, input);
    const other = { ...input, requestId: randomUUID(), paymentId: aPayment().paymentId };
    expect(await recordPayment(database().app, other)).toMatchObject({
      outcome: "repeated",
      receipt: { paymentId: input.paymentId, requestId: input.requestId },
    });
    expect(await leftBy(input)).toEqual(EVERYTHING_ONCE);
  });

  test("the same key with other parameters is contradictory, names the first ones and moves nothing", async () => {
    const input = aPayment();
    await recordPayment(database().app, input);
    const other = aPayment({ idempotencyKey: input.idempotencyKey, amountMinor: "1300" });
    expect(await recordPayment(database().app, other)).toMatchObject({
      outcome: "contradictory",
      code: "idempotency_key_reused",
      recorded: { amountMinor: "1250", source: "alice", destination: "shop" },
    });
    expect(await leftBy(input)).toEqual(EVERYTHING_ONCE);
  });

  test("two merchants may use one key", async () => {
    const input = aPayment();
    const other = aPayment({ idempotencyKey: input.idempotencyKey, merchant: "other" });
    expect((await recordPayment(database().app, input)).outcome).toBe("recorded");
    expect((await recordPayment(database().app, other)).outcome).toBe("recorded");
  });

  test.each([
    ["insufficient_funds", { amountMinor: "999999999" }],
    ["account_not_found", { source: "nobody" }],
    ["account_not_found", { destination: "nobody" }],
    ["currency_mismatch", { currency: "USD" }],
    ["currency_mismatch", { source: "world:USD" }],
  ] as const)("a request refused with %s leaves its key only: %o", async (code, overrides) => {
    const input = aPayment(overrides);
    expect(await recordPayment(database().app, input)).toMatchObject({ outcome: "refused", code });
    expect(await leftBy(input)).toEqual(KEY_ONLY);
  });

  test("a frozen source is refused, a frozen destination is not, a closed one is", async () => {
    await fundedAccount(database(), "icy", { amountMinor: 5_000n });
    await fundedAccount(database(), "gone");
    await database().admin("UPDATE remit.accounts SET status = 'frozen' WHERE id = 'icy'");
    await database().admin("UPDATE remit.accounts SET status = 'closed' WHERE id = 'gone'");
    const codes = [];
    for (const overrides of [{ source: "icy" }, { destination: "icy" }, { destination: "gone" }]) {
      const result = await recordPayment(database().app, aPayment(overrides));
      codes.push("code" in result ? result.code : result.outcome);
    }
    expect(codes).toEqual(["account_frozen", "recorded", "account_closed"]);
  });

  test("a refusal is remembered, whatever the balance is by then", async () => {
    await fundedAccount(database(), "poor");
    const input = aPayment({ source: "poor" });
    const first = await recordPayment(database().app, input);
    await fundedAccount(database(), "poor", { amountMinor: 100_000n });
    const again = await recordPayment(database().app, { ...input, requestId: randomUUID() });
    expect(again).toEqual(first);
    expect(await leftBy(input)).toEqual(KEY_ONLY);
  });

  test.each([
    ["amount_invalid", { amountMinor: "0" }],
    ["amount_invalid", { amountMinor: "-1" }],
    ["amount_too_large", { amountMinor: "1000000000000000000" }],
    ["currency_unknown", { currency: "XAU" }],
    ["same_account", { destination: "alice" }],
    ["key_invalid", { idempotencyKey: "a b" }],
    ["merchant_invalid", { merchant: "A:b" }],
    ["text_invalid", { description: "\u0000" }],
    ["text_invalid", { description: "\ud800" }],
    ["text_invalid", { description: "\uffff" }],
  ] as const)(
    "malformed input (%s) leaves nothing, also past the client",
    async (code, overrides) => {
      const input = aPayment(overrides);
      expect(await recordPayment(database().app, input)).toMatchObject({
        outcome: "malformed",
        code,
      });
      expect(await leftBy(input)).toEqual(NOTHING);
    },
  );

  test("parameters under another's fingerprint are refused: the key would answer that one's request", async () => {
    const asked = aPayment({ amountMinor: "5000" });
    const trap = { ...asked, amountMinor: "1" };
    expect(await recordPayment(database().app, trap)).toMatchObject({
      outcome: "malformed",
      code: "usage",
    });
    expect(await leftBy(asked)).toEqual(NOTHING);
    expect(await recordPayment(database().app, asked)).toMatchObject({ outcome: "recorded" });
  });

  test("a request whose caller has given up records nothing, and the key is free for a repeat", async () => {
    const input = aPayment({ notAfter: new Date(Date.now() - 1_000).toISOString() });
    expect(await recordPayment(database().app, input)).toEqual({ outcome: "expired" });
    expect(await leftBy(input)).toEqual(NOTHING);
    const repeat = { ...input, notAfter: new Date(Date.now() + 60_000).toISOString() };
    expect((await recordPayment(database().app, repeat)).outcome).toBe("recorded");
  });

  test("twenty callers with one key at once make one payment", async () => {
    const input = aPayment();
    const results = await Promise.all(
      Array.from(
        { length: 20 },
        async () =>
          await recordPayment(database().app, {
            ...input,
            requestId: randomUUID(),
            paymentId: aPayment().paymentId,
          }),
      ),
    );
    expect(results.filter(({ outcome }) => outcome === "recorded")).toHaveLength(1);
    expect(results.filter(({ outcome }) => outcome === "repeated")).toHaveLength(19);
    expect(await leftBy(input)).toEqual(EVERYTHING_ONCE);
  });

  test("sixty payments of 100 by twenty clients out of 1,000: ten are paid, none is an error", async () => {
    await fundedAccount(database(), "thousand", { amountMinor: 1_000n });
    const results = await Promise.all(
      Array.from(
        { length: 60 },
        async () =>
          await recordPayment(database().app, aPayment({ source: "thousand", amountMinor: "100" })),
      ),
    );
    const refused = results.filter(
      (result) => "code" in result && result.code === "insufficient_funds",
    );
    expect(results.filter(({ outcome }) => outcome === "recorded")).toHaveLength(10);
    expect(refused).toHaveLength(50);
    expect((await getAccount(database().app, "thousand"))?.availableMinor).toBe(0n);
  });

  test("the greatest amount passes without losing a digit", async () => {
    await fundedAccount(database(), "rich", { amountMinor: 999_999_999_999_999_999n });
    const input = aPayment({ source: "rich", amountMinor: "999999999999999999" });
    expect((await recordPayment(database().app, input)).outcome).toBe("recorded");
    const [event] = await database().admin<{ amount: string }>(
      "SELECT payload -> 'data' ->> 'amountMinor' AS amount FROM remit.outbox WHERE aggregate_id = $1",
      [input.paymentId],
    );
    expect(event?.amount).toBe("999999999999999999");
    expect((await getAccount(database().app, "rich"))?.heldMinor).toBe(999_999_999_999_999_999n);
  });
});

describe("createAccount", () => {
  test("is idempotent by id and refuses other properties", async () => {
    const account = {
      accountId: "twice",
      currency: "EUR",
      kind: "customer",
      overdraftMinor: 0n,
    } as const;
    expect((await createAccount(database().app, account)).created).toBe(true);
    expect((await createAccount(database().app, account)).created).toBe(false);
    await expect(
      createAccount(database().app, { ...account, currency: "USD" }),
    ).rejects.toMatchObject({
      code: "account_exists",
    });
  });
});
