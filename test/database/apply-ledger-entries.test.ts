import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { cancelPayment } from "../../src/activities/cancel-payment.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { getAccount } from "../../src/database/account-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { tracePayment } from "../../src/database/payment-trace.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import {
  aPayment,
  createdMessage,
  expectInvariants,
  fundedAccount,
  useDatabase,
} from "../support/database.ts";

const database = useDatabase();

beforeAll(async () => {
  await fundedAccount(database(), "alice", { amountMinor: 1_000_000n });
  await fundedAccount(database(), "bob", { amountMinor: 1_000_000n });
  await fundedAccount(database(), "shop", { amountMinor: 1_000_000n, kind: "merchant" });
});
afterEach(async () => {
  await expectInvariants(database());
});

async function recorded(overrides: Partial<PaymentInput> = {}): Promise<{
  paymentId: string;
  message: { messageId: string; type: string; payload: string };
}> {
  const input = aPayment(overrides);
  const result = await recordPayment(database().app, input);
  expect(result.outcome).toBe("recorded");
  return {
    paymentId: input.paymentId,
    message: await createdMessage(database().admin, input.paymentId),
  };
}

async function balances(...ids: string[]): Promise<(bigint | undefined)[]> {
  const accounts = await Promise.all(ids.map(async (id) => await getAccount(database().app, id)));
  return accounts.map((account) => account?.postedMinor);
}

describe("a message", () => {
  test("is known by its outbox row, whatever it says of itself", async () => {
    const traceparent = `00-${"1".repeat(32)}-${"2".repeat(16)}-01`;
    const { message } = await recorded({ traceparent });
    const forged = {
      type: "refund.settled",
      traceparent: `00-${"d".repeat(32)}-${"e".repeat(16)}-01`,
    };
    const { messageId } = message;
    const told = {
      messageId,
      type: forged.type,
      payload: JSON.stringify({ id: messageId, ...forged }),
    };
    const event = { type: "payment.created", traceparent };
    expect(await applyLedgerEntries(database().app, told)).toMatchObject({
      outcome: "booked",
      event,
    });
    expect(await applyLedgerEntries(database().app, told)).toMatchObject({ repeated: true, event });
    expect(
      await database().admin("SELECT type FROM remit.inbox WHERE message_id = $1", [messageId]),
    ).toEqual([{ type: "payment.created" }]);
  });

  test.each([
    ["payment.created", (id: string) => id.toUpperCase(), "{}"],
    ["payment.created", () => "nonsense", "{}"],
    ["payment.captured", (id: string) => id, '{"data": {"captureId": "xyz"}}'],
  ])(
    "of a row of before (%s) that names no payment of ours is refused and books nothing",
    async (type, idOf, payload) => {
      const { paymentId, message } = await recorded();
      const messageId = uuidv7();
      // As such a row could be written before the table refused it; the count of events would refuse it today as well.
      await database().admin(
        `SET session_replication_role = replica;
       INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, shard)
       VALUES ('${messageId}', 'payment', '${idOf(paymentId)}', 99, '${type}', '${payload}', 0);
       SET session_replication_role = origin`,
      );
      const answer = { outcome: "refused", error: "message_unknown", transactionId: null };
      const told = { messageId, type, payload };
      expect(await applyLedgerEntries(database().app, told)).toMatchObject(answer);
      expect(await applyLedgerEntries(database().app, told)).toMatchObject({
        ...answer,
        repeated: true,
      });
      await database().admin(
        `SET session_replication_role = replica; DELETE FROM remit.outbox WHERE id = '${messageId}'; SET session_replication_role = origin`,
      );
      expect(await applyLedgerEntries(database().app, message)).toMatchObject({
        outcome: "booked",
      });
    },
  );
});

describe("applyLedgerEntries", () => {
  test("books the entries, moves the hold to posted, settles the payment and writes its event", async () => {
    const { paymentId, message } = await recorded();
    const [alice = 0n, shop = 0n] = await balances("alice", "shop");

    const applied = await applyLedgerEntries(database().app, message);

    const trace = await tracePayment(database().app, paymentId);
    expect(applied).toMatchObject({ outcome: "booked", repeated: false, paymentId, error: null });
    expect(trace.transactions).toHaveLength(1);
    expect(trace.transactions[0]?.entries).toEqual(
      [
        {
          accountId: "alice",
          direction: "debit",
          amountMinor: 1_250n,
          balanceAfterMinor: alice - 1_250n,
        },
        {
          accountId: "shop",
          direction: "credit",
          amountMinor: 1_250n,
          balanceAfterMinor: shop + 1_250n,
        },
      ].toSorted((a, b) => (a.direction < b.direction ? 1 : -1)),
    );
    expect(trace.messages.map(({ type }) => type)).toEqual(["payment.created", "payment.settled"]);
    expect(await getPayment(database().app, paymentId)).toMatchObject({
      status: "settled",
      capturedMinor: 1_250n,
      failureCode: null,
    });
  });

  test("a message delivered fifty times at once is booked once, and writes no event twice", async () => {
    const { paymentId, message } = await recorded();
    const results = await Promise.all(
      Array.from({ length: 50 }, async () => await applyLedgerEntries(database().app, message)),
    );
    const trace = await tracePayment(database().app, paymentId);
    expect(results.filter(({ repeated }) => !repeated)).toHaveLength(1);
    expect(results.every(({ outcome }) => outcome === "booked")).toBe(true);
    expect(trace.transactions).toHaveLength(1);
    expect(trace.messages).toHaveLength(2);
  });

  test("a redrive after the inbox was purged is still refused by the ledger's own key", async () => {
    const { paymentId, message } = await recorded();
    const first = await applyLedgerEntries(database().app, message);
    await database().admin("DELETE FROM remit.inbox WHERE message_id = $1", [message.messageId]);
    const again = await applyLedgerEntries(database().app, message);
    expect(again).toMatchObject({
      outcome: "booked",
      repeated: true,
      transactionId: first.transactionId,
    });
    expect((await tracePayment(database().app, paymentId)).transactions).toHaveLength(1);
  });

  test("a message under an id that no event of ours has touches nothing, and the true one still books", async () => {
    const { paymentId, message } = await recorded();
    const messageId = uuidv7();
    const forged = {
      ...message,
      messageId,
      payload: JSON.stringify({ ...JSON.parse(message.payload), id: messageId }),
    };
    expect(await applyLedgerEntries(database().app, forged)).toMatchObject({
      outcome: "refused",
      error: "message_unknown",
      paymentId: null,
    });
    expect((await getPayment(database().app, paymentId))?.status).toBe("pending");
    expect((await applyLedgerEntries(database().app, message)).outcome).toBe("booked");
    expect((await tracePayment(database().app, paymentId)).transactions).toHaveLength(1);
  });

  test("a closed destination refuses: hold released, payment failed, its event written, no entry", async () => {
    await fundedAccount(database(), "closing");
    const { paymentId, message } = await recorded({ destination: "closing" });
    await database().admin("UPDATE remit.accounts SET status = 'closed' WHERE id = 'closing'");
    const before = await getAccount(database().app, "alice");

    const applied = await applyLedgerEntries(database().app, message);
    const again = await applyLedgerEntries(database().app, message);

    const after = await getAccount(database().app, "alice");
    expect(applied).toMatchObject({ outcome: "refused", error: "account_closed", repeated: false });
    expect(again).toMatchObject({ outcome: "refused", error: "account_closed", repeated: true });
    expect((before?.heldMinor ?? 0n) - (after?.heldMinor ?? 0n)).toBe(1_250n);
    expect(after?.postedMinor).toBe(before?.postedMinor);
    expect(await getPayment(database().app, paymentId)).toMatchObject({
      status: "failed",
      failureCode: "account_closed",
    });
    const trace = await tracePayment(database().app, paymentId);
    expect(trace.transactions).toEqual([]);
    expect(trace.messages.map(({ type }) => type)).toEqual(["payment.created", "payment.failed"]);
  });

  test("a frozen source still books what was accepted", async () => {
    await fundedAccount(database(), "iced", { amountMinor: 5_000n });
    const { message } = await recorded({ source: "iced" });
    await database().admin("UPDATE remit.accounts SET status = 'frozen' WHERE id = 'iced'");
    expect((await applyLedgerEntries(database().app, message)).outcome).toBe("booked");
  });

  test("a body that isn't what our event says can't divert it: the outbox row of its id decides", async () => {
    const { paymentId, message } = await recorded();
    const other = await recorded();
    const diverted = { ...message, payload: other.message.payload };
    const unreadable = { ...other.message, payload: JSON.stringify({ data: "nothing" }) };
    expect(await applyLedgerEntries(database().app, diverted)).toMatchObject({
      outcome: "booked",
      paymentId,
    });
    expect(await applyLedgerEntries(database().app, unreadable)).toMatchObject({
      outcome: "booked",
      paymentId: other.paymentId,
    });
  });

  test("payments back and forth between the same accounts never deadlock, and keep the total", async () => {
    const pairs = [
      ["alice", "bob"],
      ["bob", "alice"],
      ["alice", "shop"],
      ["shop", "alice"],
    ] as const;
    const before = await balances("alice", "bob", "shop");
    const [deadlocksBefore] = await database().admin<{ n: number }>(
      "SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()",
    );
    const messages = await Promise.all(
      Array.from({ length: 80 }, async (_, index) => {
        const [source = "alice", destination = "bob"] = pairs[index % pairs.length] ?? [];
        return (await recorded({ source, destination, amountMinor: "1" })).message;
      }),
    );
    const results = await Promise.all(
      messages.map(async (message) => await applyLedgerEntries(database().app, message)),
    );
    const after = await balances("alice", "bob", "shop");
    const [deadlocksAfter] = await database().admin<{ n: number }>(
      "SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()",
    );
    expect(results.every(({ outcome }) => outcome === "booked")).toBe(true);
    expect(after).toEqual(before);
    expect(deadlocksAfter).toEqual(deadlocksBefore);
  });
});

describe("cancelPayment", () => {
  test("releases the hold of a pending payment; a second call and a late booking change nothing", async () => {
    const { paymentId, message } = await recorded();
    const held = (await getAccount(database().app, "alice"))?.heldMinor ?? 0n;
    expect(await cancelPayment(database().app, { paymentId })).toEqual({
      status: "cancelled",
      failureCode: null,
      changed: true,
    });
    expect(await cancelPayment(database().app, { paymentId })).toEqual({
      status: "cancelled",
      failureCode: null,
      changed: false,
    });
    expect(await applyLedgerEntries(database().app, message)).toMatchObject({
      outcome: "refused",
      error: "payment_is_cancelled",
    });
    expect((await getAccount(database().app, "alice"))?.heldMinor).toBe(held - 1_250n);
    expect((await tracePayment(database().app, paymentId)).transactions).toEqual([]);
  });

  test("a booking that came first wins", async () => {
    const { paymentId, message } = await recorded();
    await applyLedgerEntries(database().app, message);
    expect(await cancelPayment(database().app, { paymentId })).toEqual({
      status: "settled",
      failureCode: null,
      changed: false,
    });
  });

  test("booking and cancel at once: exactly one of them happens", async () => {
    for (let round = 0; round < 10; round += 1) {
      const { paymentId, message } = await recorded();
      const [applied, standing] = await Promise.all([
        applyLedgerEntries(database().app, message),
        cancelPayment(database().app, { paymentId }),
      ]);
      expect([applied.outcome, standing?.status]).toEqual(
        applied.outcome === "booked" ? ["booked", "settled"] : ["refused", "cancelled"],
      );
    }
  });
});
