import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import { purge } from "../../src/activities/retention.ts";
import type { RetentionDependencies } from "../../src/activities/retention.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { DomainError } from "../../src/domain/errors.ts";
import { changeAccountStatus } from "../../src/database/account-queries.ts";
import type { Message } from "../../src/database/ledger-queries.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import {
  aPair,
  aPayment,
  anOperation,
  createdMessage,
  expectInvariants,
  fundedAccount,
  newestMessage,
  useDatabase,
} from "../support/database.ts";

const database = useDatabase();
const DAY_MS = 24 * 3_600_000;
let [payer, seller] = ["", ""];

beforeEach(async () => {
  [payer, seller] = await aPair(database());
});
afterEach(async () => {
  await expectInvariants(database(), 60);
});

async function run(overrides: Partial<RetentionDependencies> = {}) {
  return await purge({
    database: database().app,
    outboxRetentionMs: 7 * DAY_MS,
    inboxRetentionMs: 30 * DAY_MS,
    assertQueuesForget: async () => await Promise.resolve(),
    heartbeat: () => undefined,
    signal: new AbortController().signal,
    ...overrides,
  });
}

async function paid(
  overrides: Partial<PaymentInput> = {},
): Promise<{ paymentId: string; created: Message }> {
  const input = aPayment({ source: payer, destination: seller, ...overrides });
  await recordPayment(database().app, input);
  return {
    paymentId: input.paymentId,
    created: await createdMessage(database().admin, input.paymentId),
  };
}

async function publishAll(): Promise<void> {
  await database().admin(
    "UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'sns', published_at = created_at WHERE status = 'PENDING'",
  );
}

/** Moves everything that is there so many days into the past. */
async function age(days: number): Promise<void> {
  await database().admin(
    `UPDATE remit.outbox SET created_at = created_at - $1 * interval '1 day', published_at = published_at - $1 * interval '1 day'`,
    [days],
  );
  await database().admin(
    "UPDATE remit.inbox SET received_at = received_at - $1 * interval '1 day', processed_at = processed_at - $1 * interval '1 day'",
    [days],
  );
}

async function events(aggregateId: string): Promise<string[]> {
  const rows = await database().admin<{ status: string }>(
    "SELECT status FROM remit.outbox WHERE aggregate_id = $1 ORDER BY aggregate_version",
    [aggregateId],
  );
  return rows.map(({ status }) => status);
}

describe("purge", () => {
  test("takes what is published and old, keeps what is younger, and a second run finds nothing", async () => {
    const old = await paid();
    await applyLedgerEntries(database().app, old.created);
    await publishAll();
    await age(8);
    const young = await paid();
    await applyLedgerEntries(database().app, young.created);
    await publishAll();
    expect((await run()).outboxPurged).toBeGreaterThanOrEqual(2);
    expect(await events(old.paymentId)).toEqual([]);
    expect(await events(young.paymentId)).toEqual(["PUBLISHED", "PUBLISHED"]);
    expect(await run()).toEqual({ outboxPurged: 0, inboxPurged: 0 });
  });

  test("never takes what is PENDING or DEAD, however old, nor what comes after it in its aggregate", async () => {
    const waiting = await paid();
    const dead = await paid();
    await database().admin("UPDATE remit.outbox SET status = 'DEAD' WHERE aggregate_id = $1", [
      dead.paymentId,
    ]);
    await applyLedgerEntries(database().app, dead.created);
    await database().admin(
      "UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'sns', published_at = created_at WHERE aggregate_id = $1 AND aggregate_version = 2",
      [dead.paymentId],
    );
    await age(365);
    await run();
    expect(await events(waiting.paymentId)).toEqual(["PENDING"]);
    expect(await events(dead.paymentId)).toEqual(["DEAD", "PUBLISHED"]);
    for (const attack of ["status = 'PENDING'", "status = 'DEAD'"]) {
      await expect(
        database().app.pool.query(`DELETE FROM remit.outbox WHERE ${attack}`),
      ).rejects.toMatchObject({ constraint: "outbox_purge_check" });
    }
    await applyLedgerEntries(database().app, waiting.created);
  });

  test("keeps what the ledger has still to book, since it books from the row and not from the message", async () => {
    const pending = await paid();
    const settled = await paid();
    await applyLedgerEntries(database().app, settled.created);
    const refundId = uuidv7();
    await recordRefund(database().app, {
      refundId,
      ...anOperation(settled.paymentId, { amountMinor: null, currency: null, reason: null }),
    });
    await publishAll();
    await age(60);
    await run();
    expect(await events(pending.paymentId)).toEqual(["PUBLISHED"]);
    expect(await events(refundId)).toEqual(["PUBLISHED"]);
    expect(await events(settled.paymentId)).toEqual([]);
    // Redriven after two months, both still book.
    expect(await applyLedgerEntries(database().app, pending.created)).toMatchObject({
      outcome: "booked",
      repeated: false,
    });
    const refund = await newestMessage(database().admin, {
      paymentId: settled.paymentId,
      type: "refund.created",
    });
    expect(await applyLedgerEntries(database().app, refund)).toMatchObject({ outcome: "booked" });
  });

  test("isn't ended by rows whose ids are no ids", async () => {
    const { paymentId, created } = await paid();
    await applyLedgerEntries(database().app, created);
    // Rows from before there was a rule against them.
    await database().admin("ALTER TABLE remit.outbox DISABLE TRIGGER outbox_own_id");
    await database().app.pool.query(
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
       VALUES ($1, 'payment', 'nonsense', 'payment.created', '{}'),
              ($2, 'refund', 'nonsense', 'refund.created', '{}'),
              ($3, 'payment', 'nonsense', 'payment.captured', '{"data": {"captureId": "x"}}')`,
      [uuidv7(), uuidv7(), uuidv7()],
    );
    await database().admin("ALTER TABLE remit.outbox ENABLE TRIGGER outbox_own_id");
    await publishAll();
    await age(8);
    await run();
    expect(await events("nonsense")).toEqual([]);
    expect(await events(paymentId)).toEqual([]);
  });

  test("a replay after both rows are gone is refused by the ledger, whether it was booked or refused", async () => {
    const booked = await paid();
    await applyLedgerEntries(database().app, booked.created);
    const closing = await fundedAccount(database(), `closing-${uuidv7()}`, { kind: "merchant" });
    const refused = await paid({ destination: closing });
    await changeAccountStatus(database().app, { accountId: closing, status: "closed" });
    expect(await applyLedgerEntries(database().app, refused.created)).toMatchObject({
      error: "account_closed",
    });
    await publishAll();
    await age(40);
    await run();
    const rows = await database().admin(
      "SELECT FROM remit.inbox WHERE message_id = ANY ($1) UNION ALL SELECT FROM remit.outbox WHERE id = ANY ($1)",
      [[booked.created.messageId, refused.created.messageId]],
    );
    expect(rows).toEqual([]);
    expect(await applyLedgerEntries(database().app, booked.created)).toMatchObject({
      outcome: "booked",
      repeated: true,
    });
    expect(await applyLedgerEntries(database().app, refused.created)).toMatchObject({
      outcome: "refused",
      error: "message_unknown",
    });
  });

  test("a message under a forged id isn't believed where the payment's first events are gone", async () => {
    const { paymentId } = await paid({ capture: "manual", expiresInSeconds: 86_400 });
    await publishAll();
    await age(8);
    await run();
    expect(await events(paymentId)).toEqual([]);
    await capturePayment(
      database().app,
      anOperation(paymentId, { amountMinor: "10", currency: null, final: false }),
    );
    const captured = await newestMessage(database().admin, { paymentId, type: "payment.captured" });
    const forgedId = uuidv7();
    const forged = {
      ...captured,
      messageId: forgedId,
      payload: captured.payload.replaceAll(captured.messageId, forgedId),
    };
    expect(await applyLedgerEntries(database().app, forged)).toMatchObject({
      outcome: "refused",
      error: "message_unknown",
    });
    expect(await applyLedgerEntries(database().app, captured)).toMatchObject({ outcome: "booked" });
  });

  test("an inbox that would forget before the queues do isn't purged", async () => {
    const { created } = await paid();
    await applyLedgerEntries(database().app, created);
    await publishAll();
    await age(40);
    const forgetful = async () =>
      await Promise.reject(new DomainError("usage", "the queues keep it for longer"));
    await expect(run({ assertQueuesForget: forgetful })).rejects.toMatchObject({ code: "usage" });
    expect(
      await database().admin("SELECT FROM remit.inbox WHERE message_id = $1", [created.messageId]),
    ).toHaveLength(1);
  });

  test("goes through ten thousand rows in batches, while writers go on", async () => {
    await database().admin(
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
       SELECT uuidv7(), 'thing', 'thing-' || n % 500, 'thing.changed', '{}' FROM generate_series(1, 10000) n`,
    );
    await publishAll();
    await age(8);
    const beats: number[] = [];
    const writing = Array.from({ length: 20 }, async () => await paid({ amountMinor: "1" }));
    const { outboxPurged } = await run({
      heartbeat: (summary) => beats.push(summary.outboxPurged),
    });
    await Promise.all(writing);
    expect(outboxPurged).toBeGreaterThanOrEqual(10_000);
    expect(beats.length).toBeGreaterThan(10);
    const [head] = await database().admin<{ purged: string; last: string }>(
      "SELECT purged_version AS purged, last_version AS last FROM remit.outbox_heads WHERE aggregate_type = 'thing' LIMIT 1",
    );
    expect(head?.purged).toBe(head?.last);
  });
});
