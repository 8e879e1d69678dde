import { SQSClient, GetQueueAttributesCommand, SendMessageCommand } from "@aws-sdk/client-sqs";
import { createAccount, getAccount } from "../../src/database/account-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { tracePayment } from "../../src/database/payment-trace.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { createdMessage, expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

jest.setTimeout(60_000);
const flow = useFlow();
const END = { timeoutMs: 20_000 };

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

describe("a payment", () => {
  test("goes its whole way: recorded, published, delivered, booked, settled, in at most 18 events", async () => {
    const answer = await flow().payments.pay(aRequest());
    const end = await flow().payments.waitForEnd(answer, END);

    const trace = await tracePayment(flow().database.app, answer.paymentId);
    const [created] = trace.messages;
    expect(answer).toMatchObject({ replayed: false, status: "pending" });
    expect(end).toEqual({ paymentId: answer.paymentId, status: "settled", failureCode: null });
    expect(created).toMatchObject({
      type: "payment.created",
      status: "PUBLISHED",
      outcome: "booked",
    });
    expect(created?.brokerMessageId).not.toBeNull();
    expect(trace.transactions).toHaveLength(1);
    const lengths = await eventually(async () => {
      const described = await Promise.all(
        [answer.workflowId, workflowIds.ledgerEntry(created?.messageId ?? "")].map(
          async (id) => await flow().client.workflow.getHandle(id).describe(),
        ),
      );
      expect(described.map(({ status }) => status.name)).toEqual(["COMPLETED", "COMPLETED"]);
      return described.map(({ historyLength }) => historyLength);
    });
    expect(lengths.reduce((sum, length) => sum + length, 0)).toBeLessThanOrEqual(18);
  });

  test("repeated with its key is replayed with the first ids, and moves nothing", async () => {
    const first = aRequest();
    const answer = await flow().payments.pay(first);
    await flow().payments.waitForEnd(answer, END);
    const before = await getAccount(flow().database.app, "alice");
    const again = await flow().payments.pay({ ...first, amount: "12.5" });
    expect(again).toMatchObject({ paymentId: answer.paymentId, replayed: true });
    expect(await getAccount(flow().database.app, "alice")).toEqual(before);
  });

  test("fifty callers with one key at once get one payment", async () => {
    const one = aRequest();
    const answers = await Promise.all(
      Array.from({ length: 50 }, async () => await flow().payments.pay(one)),
    );
    expect(new Set(answers.map(({ paymentId }) => paymentId)).size).toBe(1);
    expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1);
    for (const answer of answers.slice(0, 1)) await flow().payments.waitForEnd(answer, END);
  });

  test("with its key and other parameters is refused by name, while it runs and after its end", async () => {
    const first = aRequest();
    const running = flow().payments.pay(first);
    const answer = await running;
    const early = flow().payments.pay({ ...first, amount: "13.00" });
    await expect(early).rejects.toMatchObject({ code: "idempotency_key_reused" });
    await flow().payments.waitForEnd(answer, END);
    await expect(flow().payments.pay({ ...first, amount: "14.00" })).rejects.toMatchObject({
      code: "idempotency_key_reused",
      message: expect.stringMatching(/amount.*12\.50.*14\.00/) as string,
    });
    await expect(
      flow().payments.pay({ ...first, to: "alice", from: "shop" }),
    ).rejects.toMatchObject({
      code: "idempotency_key_reused",
    });
  });

  test("without funds is refused, its key remembers it, and no workflow runs on", async () => {
    const tooMuch = aRequest({ amount: "999999.00" });
    await expect(flow().payments.pay(tooMuch)).rejects.toMatchObject({
      code: "insufficient_funds",
    });
    await expect(flow().payments.pay(tooMuch)).rejects.toMatchObject({
      code: "insufficient_funds",
      details: { replayed: true },
    });
    const handle = flow().client.workflow.getHandle(
      workflowIds.payment({ merchant: "default", key: tooMuch.key }),
    );
    expect((await handle.describe()).status.name).toBe("COMPLETED");
    const [rows] = await flow().database.admin<{ n: number }>(
      "SELECT count(*)::int AS n FROM remit.payments WHERE idempotency_key = $1",
      [tooMuch.key],
    );
    expect(rows?.n).toBe(0);
  });

  test("whose message is delivered twenty times more is booked once", async () => {
    const answer = await flow().payments.pay(aRequest());
    await flow().payments.waitForEnd(answer, END);
    const message = await createdMessage(flow().database.admin, answer.paymentId);
    const sqs = new SQSClient({
      region: flow().aws.region,
      endpoint: flow().aws.endpointUrl ?? "",
      credentials: { accessKeyId: "local", secretAccessKey: "local" },
      useQueueUrlAsEndpoint: false,
    });
    await Promise.all(
      Array.from(
        { length: 20 },
        async () =>
          await sqs.send(
            new SendMessageCommand({
              QueueUrl: flow().ledgerQueueUrl,
              MessageBody: message.payload,
            }),
          ),
      ),
    );
    await eventually(async () => {
      const { Attributes = {} } = await sqs.send(
        new GetQueueAttributesCommand({ QueueUrl: flow().ledgerQueueUrl, AttributeNames: ["All"] }),
      );
      expect([
        Attributes["ApproximateNumberOfMessages"],
        Attributes["ApproximateNumberOfMessagesNotVisible"],
      ]).toEqual(["0", "0"]);
    });
    sqs.destroy();
    expect((await tracePayment(flow().database.app, answer.paymentId)).transactions).toHaveLength(
      1,
    );
  });

  test("to an account that closed meanwhile fails, and its money is free again", async () => {
    const { app, admin } = flow().database;
    await createAccount(app, {
      accountId: "closing",
      currency: "EUR",
      kind: "customer",
      overdraftMinor: 0n,
    });
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await relay.executeUpdate("pause", { args: [{ reason: "to close the account in between" }] });
    const before = await getAccount(app, "alice");
    const answer = await flow().payments.pay(aRequest({ to: "closing" }));
    await admin("UPDATE remit.accounts SET status = 'closed' WHERE id = 'closing'");
    await relay.executeUpdate("resume", { args: [] });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({
      status: "failed",
      failureCode: "account_closed",
    });
    const after = await getAccount(app, "alice");
    expect([after?.postedMinor, after?.heldMinor]).toEqual([
      before?.postedMinor,
      before?.heldMinor,
    ]);
  });

  test("that an operator cancels in the Web UI before it is booked ends as cancelled", async () => {
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await relay.executeUpdate("pause", { args: [{ reason: "to cancel in between" }] });
    const answer = await flow().payments.pay(aRequest());
    await flow().client.workflow.getHandle(answer.workflowId).cancel();
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "cancelled" });
    await relay.executeUpdate("resume", { args: [] });
    await eventually(async () => {
      const { messages } = await tracePayment(flow().database.app, answer.paymentId);
      expect(messages[0]).toMatchObject({ outcome: "refused", error: "payment_is_cancelled" });
    });
  });

  test("whose workflow an operator terminates is settled all the same", async () => {
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await relay.executeUpdate("pause", { args: [{ reason: "to terminate in between" }] });
    const answer = await flow().payments.pay(aRequest());
    await flow().client.workflow.getHandle(answer.workflowId).terminate("by hand");
    await relay.executeUpdate("resume", { args: [] });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
    expect(await getPayment(flow().database.app, answer.paymentId)).toMatchObject({
      status: "settled",
    });
  });

  test("repeated rightly while a contradictory request with its key runs gets its receipt", async () => {
    const first = aRequest();
    await flow().payments.waitForEnd(await flow().payments.pay(first), END);
    for (let round = 0; round < 10; round += 1) {
      const [wrong, right] = await Promise.allSettled([
        flow().payments.pay({ ...first, amount: "2.00" }),
        flow().payments.pay(first),
      ]);
      expect(wrong).toMatchObject({
        status: "rejected",
        reason: { code: "idempotency_key_reused" },
      });
      expect(right).toMatchObject({ status: "fulfilled", value: { replayed: true } });
    }
  });

  test("whose booking an operator terminates is booked by the supervisor", async () => {
    const { app, admin } = flow().database;
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await relay.executeUpdate("pause", { args: [{ reason: "to lose the message" }] });
    const answer = await flow().payments.pay(aRequest());
    // As if it had been published and its delivery, or its workflow, were lost.
    await admin(
      `SET session_replication_role = replica;
       UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'lost', published_at = now() - interval '1 hour' WHERE aggregate_id = '${answer.paymentId}';
       UPDATE remit.payments SET created_at = now() - interval '1 hour', updated_at = now() - interval '1 hour' WHERE id = '${answer.paymentId}';
       SET session_replication_role = origin`,
    );
    const supervision = await flow().client.workflow.execute("supervisor", {
      workflowId: "supervise-now",
      taskQueue: "payments",
      args: [],
    });
    await relay.executeUpdate("resume", { args: [] });
    expect(supervision).toMatchObject({ openPayments: 1, messagesTakenUp: 1, overdue: 1 });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
    expect((await tracePayment(app, answer.paymentId)).transactions).toHaveLength(1);
  });

  test("takes no hint that isn't a decision", async () => {
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await relay.executeUpdate("pause", { args: [{ reason: "to send nonsense in between" }] });
    const answer = await flow().payments.pay(aRequest());
    const handle = flow().client.workflow.getHandle(answer.workflowId);
    for (const nonsense of [null, "settled", 5, { status: "pending" }, { status: "rich" }]) {
      await handle.signal("ledgerDecision", nonsense);
    }
    await relay.executeUpdate("resume", { args: [] });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
  });
});
