import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { countDelivery } from "../../src/database/ledger-queries.ts";
import { knownMessage, listInbox } from "../../src/database/inbox-queries.ts";
import type { Tx } from "../../src/database/database.ts";
import {
  aPayment,
  createdMessage,
  expectInvariants,
  fundedAccount,
  useDatabase,
} from "../support/database.ts";

const database = useDatabase();

beforeAll(async () => {
  await fundedAccount(database(), "alice", { amountMinor: 100_000n });
  await fundedAccount(database(), "shop", { kind: "merchant" });
});

/** A payment from alice to shop, recorded and not yet booked. */
async function recorded(): Promise<{ paymentId: string; messageId: string; payload: string }> {
  const input = aPayment();
  await recordPayment(database().app, input);
  const message = await createdMessage(database().admin, input.paymentId);
  return { paymentId: input.paymentId, ...message };
}

describe("the list of the inbox", () => {
  test("tells of each message, the newest first, what was decided and how often it came", async () => {
    const { app } = database();
    const booked = await recorded();
    const undecided = await recorded();
    await applyLedgerEntries(app, { ...booked, type: "payment.created" });
    await countDelivery(app, booked.messageId);
    const unknown = { messageId: "01a22f9c-e7a3-749f-9fb1-a5375548064b", type: "payment.created" };
    const payload = JSON.stringify({
      specversion: "1.0",
      id: unknown.messageId,
      type: unknown.type,
      data: {},
    });
    await applyLedgerEntries(app, { ...unknown, payload });

    const [newest, before] = await listInbox(app, { onlyErrors: false, limit: 2 });
    expect(newest).toEqual({
      ...unknown,
      paymentId: null,
      outcome: "refused",
      error: "message_unknown",
      deliveries: 1,
      receivedAt: expect.any(Date),
      processedAt: expect.any(Date),
    });
    expect(before).toMatchObject({
      messageId: booked.messageId,
      paymentId: booked.paymentId,
      outcome: "booked",
      error: null,
      deliveries: 2,
    });
    expect(newest?.receivedAt.getTime()).toBeGreaterThanOrEqual(before?.receivedAt.getTime() ?? 0);
    const all = await listInbox(app, { onlyErrors: false, limit: 100 });
    expect(all.map(({ messageId }) => messageId)).not.toContain(undecided.messageId);
    await expectInvariants(database());
  });

  test("with --error has the refused ones only", async () => {
    const errors = await listInbox(database().app, { onlyErrors: true, limit: 100 });
    expect(errors.map(({ error, outcome }) => [error, outcome])).toEqual([
      ["message_unknown", "refused"],
    ]);
  });

  test("reads no more than it shows, whatever the inbox holds: by the index, backwards, without a sort", async () => {
    await database().admin(
      `SET session_replication_role = replica;
       INSERT INTO remit.inbox (consumer, message_id, type, payload, received_at, processed_at, outcome, error)
       SELECT 'ledger', uuidv7(), 'payment.created', '{}', now() - n * interval '1 second', now(),
              CASE n % 100 WHEN 0 THEN 'refused' ELSE 'booked' END, CASE n % 100 WHEN 0 THEN 'x' END
         FROM generate_series(1, 20000) n;
       SET session_replication_role = origin;
       ANALYZE remit.inbox`,
    );
    for (const onlyErrors of [false, true]) {
      const plan = await planOf(async (tx) => await listInbox(tx, { onlyErrors, limit: 50 }));
      expect(plan).toContain('"Index Name": "inbox_received_idx"');
      expect(plan).toContain('"Scan Direction": "Backward"');
      expect(plan).not.toContain('"Node Type": "Sort"');
    }
  });
});

/** The plan of the very statement that the work runs. */
async function planOf(work: (tx: Tx) => Promise<unknown>): Promise<string> {
  let plan = "";
  await work({
    run: async ({ text }, values) => {
      const rows = await database().admin(`EXPLAIN (FORMAT JSON) ${text}`, [...values]);
      plan = JSON.stringify(rows, null, 1);
      return [];
    },
  });
  return plan;
}

describe("what is known of a message in the dead-letter queue", () => {
  const known = async (messageId: string) => await knownMessage(database().app, messageId);

  test("is its outbox row's status, and what the ledger decided", async () => {
    const { messageId, payload } = await recorded();
    expect(await known(messageId)).toEqual({ outboxStatus: "PENDING", outcome: null, error: null });
    await applyLedgerEntries(database().app, { messageId, payload, type: "payment.created" });
    expect(await known(messageId)).toMatchObject({ outcome: "booked", error: null });
  });

  test("is, where inbox and outbox were purged, what the books say", async () => {
    const { messageId, payload } = await recorded();
    await applyLedgerEntries(database().app, { messageId, payload, type: "payment.created" });
    await database().admin(
      `SET session_replication_role = replica;
       DELETE FROM remit.inbox WHERE message_id = '${messageId}';
       DELETE FROM remit.outbox WHERE id = '${messageId}';
       SET session_replication_role = origin`,
    );
    const purged = { outboxStatus: null, outcome: "booked", error: null };
    expect(await known(messageId)).toEqual(purged);
  });

  test("is nothing of an id that no event of ours has", async () => {
    const nothing = { outboxStatus: null, outcome: null, error: null };
    expect(await known("01a22f9c-e7a3-749f-9fb1-a53755480640")).toEqual(nothing);
  });
});
