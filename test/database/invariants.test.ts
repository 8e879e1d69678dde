import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { verify } from "../../src/database/invariants.ts";
import type { VerifyReport } from "../../src/database/invariants.ts";
import { aPayment, cloneDatabase, createdMessage, fundedAccount } from "../support/database.ts";
import type { TestDatabase } from "../support/database.ts";
import { brokenOf } from "../support/planted.ts";

/** Each break is planted as the superuser with all triggers off: verify must name it by itself. */
let database: TestDatabase & { drop(): Promise<void> };
let settled: string;
let pending: string;
let transactionId: string;
let messageId: string;

beforeEach(async () => {
  database = await cloneDatabase(4);
  await fundedAccount(database, "alice", { amountMinor: 100_000n });
  await fundedAccount(database, "shop", { kind: "merchant" });
  const [first, second] = [aPayment(), aPayment()];
  await recordPayment(database.app, first);
  await recordPayment(database.app, second);
  await recordPayment(
    database.app,
    aPayment({ amountMinor: "99999999", idempotencyKey: "refused-one" }),
  );
  const message = await createdMessage(database.admin, first.paymentId);
  const applied = await applyLedgerEntries(database.app, message);
  [settled, pending] = [first.paymentId, second.paymentId];
  transactionId = applied.transactionId ?? "";
  messageId = message.messageId;
});
afterEach(async () => {
  await database.drop();
});

async function broken(graceSeconds = 60): Promise<VerifyReport["invariants"][number][]> {
  const report = await verify(database.app, { graceSeconds });
  const failed = report.invariants.filter(({ ok }) => !ok);
  expect(report.ok).toBe(failed.length === 0);
  // A look at what is recent finds each of them, too; it may name it otherwise.
  const scope = { kind: "recent", seconds: 3_600 } as const;
  const recent = await verify(database.app, { graceSeconds, scope });
  expect(brokenOf(recent)).toEqual(brokenOf(report));
  return failed;
}

async function plant(sql: string): Promise<void> {
  await database.admin(
    `SET session_replication_role = replica; ${sql}; SET session_replication_role = origin`,
  );
}

const quoted = (id: string): string => `'${id}'`;

describe("verify", () => {
  test("finds nothing where nothing is broken, and says what it looked at", async () => {
    const report = await verify(database.app, { graceSeconds: 60 });
    expect(report).toMatchObject({ ok: true, pendingBeyondGrace: 0 });
    expect(report.invariants.map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  test.each<[number, string, () => string, () => string]>([
    [
      1,
      "an entry changed",
      () =>
        `UPDATE remit.ledger_entries SET amount = amount + 1 WHERE transaction_id = ${quoted(transactionId)} AND direction = 'credit'`,
      () => transactionId,
    ],
    [
      1,
      "a transaction without entries",
      () => `DELETE FROM remit.ledger_entries WHERE transaction_id = ${quoted(transactionId)}`,
      () => transactionId,
    ],
    [
      2,
      "a balance changed",
      () => "UPDATE remit.accounts SET posted = posted + 1 WHERE id = 'shop'",
      () => "shop",
    ],
    [
      2,
      "a version skipped",
      () => "UPDATE remit.ledger_entries SET account_version = 9 WHERE account_id = 'shop'",
      () => "shop",
    ],
    [
      3,
      "a hold changed",
      () => `UPDATE remit.holds SET remaining = 1 WHERE payment_id = ${quoted(pending)}`,
      () => "alice",
    ],
    [
      3,
      "a hold left open at the end",
      () =>
        `UPDATE remit.holds SET remaining = 5, status = 'open', closed_at = NULL WHERE payment_id = ${quoted(settled)}`,
      () => settled,
    ],
    [
      3,
      "a pending payment without a hold",
      () =>
        `UPDATE remit.holds SET remaining = 0, status = 'closed', closed_at = now() WHERE payment_id = ${quoted(pending)}; UPDATE remit.accounts SET held = 0 WHERE id = 'alice'`,
      () => pending,
    ],
    [
      4,
      "refunded without a refund",
      () => `UPDATE remit.payments SET refunded_amount = 1 WHERE id = ${quoted(settled)}`,
      () => settled,
    ],
    [
      5,
      "an account overdrawn",
      () =>
        "ALTER TABLE remit.accounts DROP CONSTRAINT accounts_available_check; UPDATE remit.accounts SET posted = -5 WHERE id = 'shop'",
      () => "shop",
    ],
    [
      6,
      "an event deleted",
      () =>
        `DELETE FROM remit.outbox WHERE aggregate_id = ${quoted(settled)} AND aggregate_version = 1`,
      () => settled,
    ],
    [
      6,
      "a change without its event",
      () => `UPDATE remit.payments SET version = 5 WHERE id = ${quoted(pending)}`,
      () => pending,
    ],
    [
      7,
      "a status that no event led to",
      () => `UPDATE remit.payments SET status = 'cancelled' WHERE id = ${quoted(pending)}`,
      () => pending,
    ],
    [
      7,
      "settled without a ledger transaction",
      () =>
        `DELETE FROM remit.ledger_entries WHERE transaction_id = ${quoted(transactionId)}; DELETE FROM remit.ledger_transactions WHERE id = ${quoted(transactionId)}`,
      () => settled,
    ],
    [
      8,
      "published without a receipt",
      () =>
        `ALTER TABLE remit.outbox DROP CONSTRAINT outbox_receipt_check; UPDATE remit.outbox SET status = 'PUBLISHED' WHERE aggregate_id = ${quoted(pending)}`,
      () => "without a receipt",
    ],
    [
      9,
      "published and lost on the way",
      () =>
        `UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'x', published_at = now() - interval '1 hour' WHERE aggregate_id = ${quoted(pending)}`,
      () => pending,
    ],
    [
      9,
      "an inbox row without its booking",
      () =>
        `INSERT INTO remit.inbox (consumer, message_id, type, payload, processed_at, outcome) VALUES ('ledger', ${quoted(uuidv7())}, 'payment.created', '{}', now(), 'booked')`,
      () => "not in the ledger",
    ],
    [
      9,
      "refused and booked at once",
      () =>
        `UPDATE remit.inbox SET outcome = 'refused', error = 'x' WHERE message_id = ${quoted(messageId)}`,
      () => messageId,
    ],
    [
      9,
      "booked to somebody else",
      () =>
        `UPDATE remit.ledger_entries SET account_id = 'alice', account_version = 77 WHERE transaction_id = ${quoted(transactionId)} AND direction = 'credit'`,
      () => settled,
    ],
    [
      10,
      "a refused key with a payment",
      () =>
        `UPDATE remit.payments SET idempotency_key = 'refused-one' WHERE id = ${quoted(pending)}`,
      () => pending,
    ],
    [
      10,
      "a payment without its key",
      () => `DELETE FROM remit.idempotency_keys WHERE outcome ->> 'paymentId' = ${quoted(pending)}`,
      () => pending,
    ],
    [
      10,
      "a payment whose key is another operation's",
      () =>
        `ALTER TABLE remit.idempotency_keys DROP CONSTRAINT idempotency_keys_outcome_check;
         UPDATE remit.idempotency_keys SET operation = 'refund' WHERE outcome ->> 'paymentId' = ${quoted(pending)}`,
      () => pending,
    ],
  ])("invariant %i: %s is found and named", async (number, _what, sql, named) => {
    await plant(sql());
    const failed = await broken();
    const found = failed.find((invariant) => invariant.number === number);
    expect(found?.violations).toBeGreaterThan(0);
    expect(found?.examples.join("\n")).toContain(named());
  });

  test("what waits beyond the grace time is lag and not a break", async () => {
    await plant(
      "UPDATE remit.outbox SET created_at = now() - interval '1 hour' WHERE status = 'PENDING'",
    );
    const report = await verify(database.app, { graceSeconds: 60 });
    expect(report.ok).toBe(true);
    expect(report.pendingBeyondGrace).toBeGreaterThan(0);
  });

  test("holds after retention has purged the inbox and the outbox of a booked payment", async () => {
    await plant(
      `DELETE FROM remit.inbox;
       DELETE FROM remit.outbox WHERE aggregate_id = ${quoted(settled)};
       UPDATE remit.outbox_heads SET purged_version = last_version WHERE aggregate_id = ${quoted(settled)}`,
    );
    expect(await broken()).toEqual([]);
  });
});
