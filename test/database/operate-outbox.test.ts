import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { cancelPayment } from "../../src/activities/cancel-payment.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import {
  republishMessages,
  retryMessages,
  skipMessages,
} from "../../src/activities/operate-outbox.ts";
import type { OperateInput } from "../../src/activities/operate-outbox.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { deadMessageIds } from "../../src/database/outbox-change-queries.ts";
import { listOutbox, outboxStatus } from "../../src/database/outbox-view-queries.ts";
import { getCapture, getRefund } from "../../src/database/part-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import type { OutgoingMessage } from "../../src/messaging/sns-publisher.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import {
  aPair,
  aPayment,
  anOperation,
  createdMessage,
  expectInvariants,
  moneyOf,
  newestMessage,
  useDatabase,
} from "../support/database.ts";
import { scriptedBroker } from "../support/scripted-broker.ts";

const database = useDatabase();
let [payer, seller] = ["", ""];

beforeEach(async () => {
  [payer, seller] = await aPair(database());
});
afterEach(async () => {
  await expectInvariants(database(), 60);
});

function operation(messageIds: readonly string[], isDryRun = false): OperateInput {
  return { messageIds, operator: { actor: "ana@desk", reason: "told by phone" }, isDryRun };
}

async function paid(
  overrides: Partial<PaymentInput> = {},
): Promise<{ paymentId: string; messageId: string }> {
  const input = aPayment({ source: payer, destination: seller, ...overrides });
  expect(await recordPayment(database().app, input)).toMatchObject({ outcome: "recorded" });
  const { messageId } = await createdMessage(database().admin, input.paymentId);
  return { paymentId: input.paymentId, messageId };
}

async function make(messageId: string, change: string): Promise<void> {
  await database().admin(`UPDATE remit.outbox SET ${change} WHERE id = $1`, [messageId]);
}

const DEAD = "status = 'DEAD', claims = 7, attempts = 5, last_error = 'too big'";
const LEASED = "lease_token = gen_random_uuid(), lease_until = now() + interval '1 minute'";
const PUBLISHED = "status = 'PUBLISHED', broker_message_id = 'sns-1', published_at = now()";

async function row(messageId: string): Promise<Record<string, unknown> | undefined> {
  const [found] = await database().admin<Record<string, unknown>>(
    "SELECT status, claims, attempts, next_attempt_at, last_error FROM remit.outbox WHERE id = $1",
    [messageId],
  );
  return found;
}

async function actions(messageId: string): Promise<unknown[]> {
  return await database().admin(
    "SELECT action, actor, reason, details FROM remit.operator_actions WHERE message_id = $1 ORDER BY id",
    [messageId],
  );
}

async function money(accountId: string): Promise<{ posted: bigint; held: bigint }> {
  return await moneyOf(database(), accountId);
}

describe("retryMessages", () => {
  test("makes a dead message due with every attempt before it, and keeps who, why and what it was", async () => {
    const { messageId } = await paid();
    await make(messageId, DEAD);
    expect(await retryMessages(database().app, operation([messageId]))).toEqual([
      { messageId, type: "payment.created", from: "DEAD", to: "PENDING" },
    ]);
    expect(await row(messageId)).toMatchObject({
      status: "PENDING",
      claims: 0,
      attempts: 0,
      next_attempt_at: Number.NEGATIVE_INFINITY,
    });
    expect(await actions(messageId)).toEqual([
      {
        action: "outbox.retry",
        actor: "ana@desk",
        reason: "told by phone",
        details: { status: "DEAD", claims: 7, attempts: 5, lastError: "too big" },
      },
    ]);
  });

  test.each([
    ["published", PUBLISHED],
    ["in a relay's hand", LEASED],
  ])("refuses one that is %s, and then changes none of the others", async (_, change) => {
    const dead = await paid();
    const other = await paid();
    await make(dead.messageId, DEAD);
    await make(other.messageId, change);
    await expect(
      retryMessages(database().app, operation([dead.messageId, other.messageId])),
    ).rejects.toMatchObject({ code: "message_not_retryable" });
    expect(await row(dead.messageId)).toMatchObject({ status: "DEAD" });
    expect(await actions(dead.messageId)).toEqual([]);
    await make(other.messageId, "lease_token = NULL, lease_until = NULL");
  });

  test("a message that the outbox doesn't have is named", async () => {
    const stranger = uuidv7();
    await expect(retryMessages(database().app, operation([stranger]))).rejects.toMatchObject({
      code: "message_not_found",
      message: expect.stringContaining(stranger) as string,
    });
  });

  test("a dry run answers the same and leaves no trace", async () => {
    const { messageId } = await paid();
    await make(messageId, DEAD);
    expect(await retryMessages(database().app, operation([messageId], true))).toMatchObject([
      { from: "DEAD", to: "PENDING" },
    ]);
    expect(await row(messageId)).toMatchObject({ status: "DEAD", attempts: 5 });
    expect(await actions(messageId)).toEqual([]);
  });

  test("all dead messages are found by their type", async () => {
    const { messageId } = await paid();
    await make(messageId, DEAD);
    const find = async (type: string | null) =>
      await deadMessageIds(database().app, { type, limit: 10_000 });
    expect(await find(null)).toContain(messageId);
    expect(await find("payment.created")).toContain(messageId);
    expect(await find("refund.created")).not.toContain(messageId);
  });
});

describe("skipMessages", () => {
  test("a payment that waits for the message ends failed, its hold released, and a late copy is not booked", async () => {
    const { paymentId, messageId } = await paid();
    await make(messageId, DEAD);
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 1_250n });
    const [skipped] = await skipMessages(database().app, operation([messageId]));
    expect(skipped).toMatchObject({
      from: "DEAD",
      to: "SKIPPED",
      applied: { outcome: "refused", error: "message_skipped", payment: { status: "failed" } },
    });
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 0n });
    expect(await getPayment(database().app, paymentId)).toMatchObject({
      status: "failed",
      failureCode: "message_skipped",
    });
    const late = await applyLedgerEntries(
      database().app,
      await createdMessage(database().admin, paymentId),
    );
    expect(late).toMatchObject({ outcome: "refused", repeated: true, error: "message_skipped" });
    expect(await actions(messageId)).toMatchObject([{ action: "outbox.skip", actor: "ana@desk" }]);
  });

  test("a capture that waits for the message is given back to its authorization", async () => {
    const { paymentId } = await paid({ capture: "manual", expiresInSeconds: 3_600 });
    const captured = await capturePayment(
      database().app,
      anOperation(paymentId, { amountMinor: "500", currency: "EUR", final: false }),
    );
    const { messageId } = await newestMessage(database().admin, {
      paymentId,
      type: "payment.captured",
    });
    await skipMessages(database().app, operation([messageId]));
    expect(captured).toMatchObject({ outcome: "recorded" });
    const { captureId } = (captured as { receipt: { captureId: string } }).receipt;
    expect(await getCapture(database().app, captureId)).toMatchObject({
      status: "failed",
      failureCode: "message_skipped",
    });
    expect(await getPayment(database().app, paymentId)).toMatchObject({
      status: "authorized",
      capturedMinor: 0n,
    });
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 1_250n });
  });

  test("a refund that waits for the message fails and gives its amount back", async () => {
    const { paymentId } = await paid();
    await applyLedgerEntries(database().app, await createdMessage(database().admin, paymentId));
    const refundId = uuidv7();
    await recordRefund(database().app, {
      refundId,
      ...anOperation(paymentId, { amountMinor: null, currency: null, reason: null }),
    });
    expect(await money(seller)).toEqual({ posted: 1_250n, held: 1_250n });
    const { messageId } = await newestMessage(database().admin, {
      paymentId,
      type: "refund.created",
    });
    await skipMessages(database().app, operation([messageId]));
    expect(await getRefund(database().app, refundId)).toMatchObject({
      status: "failed",
      failureCode: "message_skipped",
    });
    expect(await money(seller)).toEqual({ posted: 1_250n, held: 0n });
  });

  test("what was booked or cancelled before stays as it is; the message only leaves the way", async () => {
    const booked = await paid();
    await applyLedgerEntries(
      database().app,
      await createdMessage(database().admin, booked.paymentId),
    );
    const cancelled = await paid();
    await cancelPayment(database().app, { paymentId: cancelled.paymentId });
    const skipped = await skipMessages(
      database().app,
      operation([booked.messageId, cancelled.messageId]),
    );
    expect(skipped.map(({ applied }) => applied)).toMatchObject([
      { outcome: "booked", repeated: true },
      { outcome: "refused", error: "payment_is_cancelled" },
    ]);
    expect(await getPayment(database().app, booked.paymentId)).toMatchObject({ status: "settled" });
    expect(await getPayment(database().app, cancelled.paymentId)).toMatchObject({
      status: "cancelled",
    });
  });

  test("a dry run says how the payment would end, and it goes on", async () => {
    const { paymentId, messageId } = await paid();
    const [skipped] = await skipMessages(database().app, operation([messageId], true));
    expect(skipped).toMatchObject({ to: "SKIPPED", applied: { payment: { status: "failed" } } });
    expect(await getPayment(database().app, paymentId)).toMatchObject({ status: "pending" });
    expect(await row(messageId)).toMatchObject({ status: "PENDING" });
  });

  test("one that a relay has in hand is refused: it may be on its way", async () => {
    const { messageId, paymentId } = await paid();
    await make(messageId, LEASED);
    await expect(skipMessages(database().app, operation([messageId]))).rejects.toMatchObject({
      code: "message_not_skippable",
    });
    expect(await getPayment(database().app, paymentId)).toMatchObject({ status: "pending" });
    await make(messageId, "lease_token = NULL, lease_until = NULL");
  });

  test("the database skips nothing for which nobody stands", async () => {
    const { messageId } = await paid();
    await expect(
      database().app.pool.query("UPDATE remit.outbox SET status = 'SKIPPED' WHERE id = $1", [
        messageId,
      ]),
    ).rejects.toMatchObject({ constraint: "outbox_skip_check" });
  });

  test("what was done can't be taken out of the record", async () => {
    const { messageId } = await paid();
    await skipMessages(database().app, operation([messageId]));
    for (const attack of [
      "UPDATE remit.operator_actions SET actor = 'somebody else'",
      "DELETE FROM remit.operator_actions",
    ]) {
      await expect(database().app.pool.query(attack)).rejects.toMatchObject({ code: "42501" });
      await expect(database().admin(attack)).rejects.toMatchObject({ code: "42501" });
    }
  });
});

describe("republishMessages", () => {
  test("sends a published message again under its own id and keeps the receipt; a FIFO topic takes it as a new one", async () => {
    const { messageId } = await paid();
    await make(messageId, PUBLISHED);
    const seen: OutgoingMessage[] = [];
    const publisher = scriptedBroker((message) => {
      seen.push(message);
      return "accepted";
    });
    for (const republication of [1, 2]) {
      expect(
        await republishMessages({ database: database().app, publisher }, operation([messageId])),
      ).toMatchObject([{ messageId, brokerMessageId: `sns-${messageId}` }]);
      expect(seen.at(-1)).toMatchObject({ messageId, republication });
    }
    expect(
      (await actions(messageId)).map((action) => (action as { action: string }).action),
    ).toEqual(["outbox.republish", "outbox.republished", "outbox.republish", "outbox.republished"]);
    expect(await row(messageId)).toMatchObject({ status: "PUBLISHED" });
  });

  test("what a broker doesn't take stays in the record without a receipt", async () => {
    const { messageId } = await paid();
    await make(messageId, PUBLISHED);
    await expect(
      republishMessages(
        { database: database().app, publisher: scriptedBroker(() => "outage") },
        operation([messageId]),
      ),
    ).rejects.toMatchObject({ code: "broker_unreachable" });
    expect(await actions(messageId)).toMatchObject([{ action: "outbox.republish" }]);
  });

  test("one that was never published is refused, and nothing is sent", async () => {
    const { messageId } = await paid();
    const publisher = scriptedBroker();
    await expect(
      republishMessages({ database: database().app, publisher }, operation([messageId])),
    ).rejects.toMatchObject({ code: "message_not_republishable" });
    expect(publisher.sent).toEqual([]);
  });
});

describe("what people see", () => {
  test("open rows first and oldest first, skipped and published ones when asked for; the counts agree", async () => {
    const dead = await paid();
    const skipped = await paid();
    await make(dead.messageId, DEAD);
    await skipMessages(database().app, operation([skipped.messageId]));
    const list = async (status: "DEAD" | "SKIPPED" | null) =>
      (await listOutbox(database().app, { status, type: null, limit: 10_000 })).map(
        ({ messageId }) => messageId,
      );
    expect(await list(null)).toContain(dead.messageId);
    expect(await list(null)).not.toContain(skipped.messageId);
    expect(await list("DEAD")).toContain(dead.messageId);
    expect(await list("SKIPPED")).toContain(skipped.messageId);
    const { dead: deadCount, skipped: skippedCount } = await outboxStatus(database().app);
    expect(deadCount).toBe((await list("DEAD")).length);
    expect(skippedCount).toBe((await list("SKIPPED")).length);
  });
});
