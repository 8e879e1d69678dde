import { randomUUID } from "node:crypto";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { readKeyFact, readPaymentFacts } from "../../src/database/payment-facts.ts";
import { aPayment, createdMessage, fundedAccount, useDatabase } from "../support/database.ts";

const database = useDatabase();

beforeAll(async () => {
  await fundedAccount(database(), "alice", { amountMinor: 100_000n });
  await fundedAccount(database(), "shop", { kind: "merchant" });
});

describe("the facts of a payment", () => {
  test("are its rows in one snapshot: hold, message, entries, balances, in the order of its accounts", async () => {
    const input = aPayment();
    await recordPayment(database().app, input);
    const pending = await readPaymentFacts(database().app, input.paymentId);
    await applyLedgerEntries(
      database().app,
      await createdMessage(database().admin, input.paymentId),
    );
    const settled = await readPaymentFacts(database().app, input.paymentId);

    expect(pending).toMatchObject({
      payment: { status: "pending", amountMinor: 1_250n, settledAt: null, purgedVersion: 0 },
      holds: [{ accountId: "alice", refundId: null, amountMinor: 1_250n, remainingMinor: 1_250n }],
      messages: [
        { type: "payment.created", status: "PENDING", nextAttemptAt: null, deliveries: null },
      ],
      transactions: [],
      captures: [],
      refunds: [],
      accounts: [
        { accountId: "alice", postedMinor: 100_000n, heldMinor: 1_250n, availableMinor: 98_750n },
        { accountId: "shop", postedMinor: 0n },
      ],
    });
    expect(settled).toMatchObject({
      payment: { status: "settled", capturedMinor: 1_250n },
      holds: [{ remainingMinor: 0n }],
      messages: [
        { type: "payment.created", version: 1, outcome: "booked", deliveries: 1 },
        { type: "payment.settled", version: 2, outcome: null, deliveries: null },
      ],
      transactions: [
        {
          kind: "payment",
          entries: [
            { accountId: "alice", direction: "debit", balanceAfterMinor: 98_750n },
            { accountId: "shop", direction: "credit", balanceAfterMinor: 1_250n },
          ],
        },
      ],
    });
  });

  test("are null for an id that no payment has", async () => {
    expect(await readPaymentFacts(database().app, randomUUID())).toBeNull();
  });
});

describe("the fact of a key", () => {
  test("names the payment where it was accepted", async () => {
    const input = aPayment();
    await recordPayment(database().app, input);
    const { merchant, idempotencyKey: key, paymentId } = input;
    expect(await readKeyFact(database().app, { merchant, key })).toMatchObject({
      operation: "pay",
      paymentId,
      refusal: null,
    });
  });

  test("holds the refusal and the request where it was refused, and no payment", async () => {
    const input = aPayment({ amountMinor: "99999999" });
    await recordPayment(database().app, input);
    const { merchant, idempotencyKey: key } = input;
    expect(await readKeyFact(database().app, { merchant, key })).toMatchObject({
      operation: "pay",
      paymentId: null,
      refusal: { code: "insufficient_funds" },
      parameters: { source: "alice", destination: "shop", amountMinor: "99999999" },
    });
  });

  test("is null for a key that nobody has used", async () => {
    expect(await readKeyFact(database().app, { merchant: "default", key: "unused" })).toBeNull();
  });
});
