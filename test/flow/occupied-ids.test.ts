import { randomUUID } from "node:crypto";
import { DefaultLogger, Runtime } from "@temporalio/worker";
import { createAccount } from "../../src/database/account-queries.ts";
import { tracePayment } from "../../src/database/payment-trace.ts";
import { scheduleIds, workflowIds } from "../../src/domain/ids.ts";
import { eventually } from "../support/eventually.ts";
import { useFlow } from "../support/flow.ts";
import { runRemit } from "../support/remit-command.ts";

jest.setTimeout(120_000);
Runtime.install({ logger: new DefaultLogger("ERROR") });
const flow = useFlow();
const END = { timeoutMs: 60_000 };
const relayId = workflowIds.outboxRelay({ fromShard: 0, toShard: 63 });

beforeAll(async () => {
  const merchant = { currency: "EUR", kind: "merchant", overdraftMinor: 0n } as const;
  await createAccount(flow().database.app, { ...merchant, accountId: "shop" });
  await flow().startWorker();
});

function aRequest() {
  return { key: randomUUID(), from: "world:EUR", to: "shop", amount: "1.00", currency: "EUR" };
}

/** Ends the run of this id and starts another under it, on a task queue that no worker serves. */
async function occupy(workflowId: string, type: string): Promise<void> {
  await flow().client.workflow.getHandle(workflowId).terminate("to be occupied");
  await flow().client.workflow.start(type, { workflowId, taskQueue: "nobody", args: [] });
}

async function queueOf(workflowId: string): Promise<string> {
  return (await flow().client.workflow.getHandle(workflowId).describe()).taskQueue;
}

/** Makes what these payments and refunds wait for late enough for the supervisor. */
async function age(paymentIds: readonly string[]): Promise<void> {
  const hour = "interval '1 hour'";
  await flow().database.admin(
    `SET session_replication_role = replica;
     UPDATE remit.payments SET created_at = created_at - ${hour}, updated_at = updated_at - ${hour} WHERE id IN (${list(paymentIds)});
     UPDATE remit.refunds SET created_at = created_at - ${hour} WHERE payment_id IN (${list(paymentIds)});
     SET session_replication_role = origin`,
  );
}

function list(ids: readonly string[]): string {
  return ids.map((id) => `'${id}'`).join(", ");
}

async function supervise(): Promise<void> {
  await flow().client.schedule.getHandle(scheduleIds.supervisor).trigger();
}

async function pause(): Promise<void> {
  const relay = flow().client.workflow.getHandle(relayId);
  const args: [{ reason: string }] = [{ reason: "to occupy ids meanwhile" }];
  await eventually(async () => await relay.executeUpdate("pause", { args }), END);
}

async function resume(): Promise<void> {
  await flow().client.workflow.getHandle(relayId).executeUpdate("resume", { args: [] });
}

describe("an id of Remit that is occupied by a run on which nobody works", () => {
  test("a dozen payments', is given back by the supervisor, and they settle", async () => {
    const { payments } = flow();
    await pause();
    const answers = await Promise.all(
      Array.from({ length: 12 }, async () => await payments.pay(aRequest())),
    );
    for (const { workflowId } of answers) await occupy(workflowId, "payment");
    await age(answers.map(({ paymentId }) => paymentId));
    await eventually(async () => {
      await supervise();
      const queues = await Promise.all(answers.map(({ workflowId }) => queueOf(workflowId)));
      expect(new Set(queues)).toEqual(new Set(["payments"]));
    }, END);
    await resume();
    for (const answer of answers) {
      expect(await payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
    }
  });

  test("a payment's whose run was told by hand that it is settled: pay --wait prints no end that PostgreSQL doesn't know", async () => {
    await pause();
    const { key, from, to, amount, currency } = aRequest();
    const words = Object.entries({ key, from, to, amount, currency, wait: "20s" });
    const args = ["pay", "--json", ...words.map(([name, value]) => `--${name}=${value}`)];
    const ran = runRemit(flow(), args);
    const run = flow().client.workflow.getHandle(workflowIds.payment({ merchant: "default", key }));
    const messageId = await eventually(async () => {
      const [event] = await flow().database.admin<{ id: string }>(
        "SELECT o.id FROM remit.payments p JOIN remit.outbox o ON o.aggregate_id = p.id::text WHERE p.idempotency_key = $1",
        [key],
      );
      expect(event).toBeDefined();
      return event?.id;
    }, END);
    await run.signal("ledgerDecision", { status: "settled", failureCode: null, messageId });
    expect(await run.result()).toMatchObject({ status: "settled" });
    const { exit, out } = await ran;
    await resume();
    expect([exit, JSON.parse(out)]).toMatchObject([7, { code: "wait_timeout", status: "pending" }]);
  });

  test("a refund's, is given back", async () => {
    const { payments } = flow();
    const request = aRequest();
    const paid = await payments.pay(request);
    await payments.waitForEnd(paid, END);
    await pause();
    const handle = { paymentId: paid.paymentId, ...paid.parameters };
    const refund = await payments.refund(handle, { key: randomUUID() });
    await occupy(refund.workflowId, "refund");
    await age([paid.paymentId]);
    await eventually(async () => {
      await supervise();
      expect(await queueOf(refund.workflowId)).toBe("payments");
    }, END);
    await resume();
    expect(await payments.waitForRefund(refund, END)).toMatchObject({ status: "settled" });
  });

  test("a message's, is given back, and the message is booked", async () => {
    const { payments, client, database } = flow();
    await pause();
    const answer = await payments.pay(aRequest());
    const { messages } = await tracePayment(database.app, answer.paymentId);
    const workflowId = workflowIds.ledgerEntry(messages[0]?.messageId ?? "");
    await client.workflow.start("ledgerEntry", { workflowId, taskQueue: "nobody", args: [] });
    await resume();
    await eventually(async () => {
      const [row] = await database.admin<{ status: string }>(
        "SELECT status FROM remit.outbox WHERE aggregate_id = $1",
        [answer.paymentId],
      );
      expect(row?.status).toBe("PUBLISHED");
    }, END);
    await age([answer.paymentId]);
    await database.admin(
      "UPDATE remit.outbox SET created_at = created_at - interval '1 hour', published_at = published_at - interval '1 hour' WHERE aggregate_id = $1",
      [answer.paymentId],
    );
    await supervise();
    expect(await payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
    expect((await tracePayment(database.app, answer.paymentId)).transactions).toHaveLength(1);
  });

  test("a relay's, is given back, and events go out again", async () => {
    const { payments } = flow();
    await occupy(relayId, "outboxRelay");
    await eventually(async () => {
      await supervise();
      expect(await queueOf(relayId)).toBe("relay");
    }, END);
    const answer = await payments.pay(aRequest());
    expect(await payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
  });
});
