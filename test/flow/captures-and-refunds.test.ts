import type { ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import type { PaymentAnswer } from "../../src/client/payment-client.ts";
import type { PaymentHandle } from "../../src/client/workflow-starts.ts";
import { getAccount } from "../../src/database/account-queries.ts";
import { getCapture, getRefund } from "../../src/database/part-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

jest.setTimeout(120_000);
const flow = useFlow();
const END = { timeoutMs: 30_000 };
let worker: ChildProcess;

beforeAll(async () => {
  worker = await flow().startWorker();
  await openFundedAccounts(flow());
}, 120_000);
afterEach(async () => {
  await eventually(async () => await expectInvariants(flow().database, 0), { timeoutMs: 30_000 });
});

async function authorized(amount = "10.00", expires = "1h"): Promise<PaymentAnswer> {
  const answer = await flow().payments.pay(aRequest({ amount, capture: "manual", expires }));
  expect(answer.status).toBe("authorized");
  return answer;
}

function handleOf({ paymentId, parameters }: PaymentAnswer): PaymentHandle {
  return { paymentId, ...parameters };
}

async function statusOf({ paymentId }: PaymentAnswer): Promise<string | undefined> {
  return (await getPayment(flow().database.app, paymentId))?.status;
}

function relay() {
  return flow().client.workflow.getHandle(workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }));
}

async function whileRelayIsPaused(work: () => Promise<void>): Promise<void> {
  await relay().executeUpdate("pause", { args: [{ reason: "to act in between" }] });
  try {
    await work();
  } finally {
    await relay().executeUpdate("resume", { args: [] });
  }
}

describe("an authorization", () => {
  test("is captured in two parts, each booked, and its workflow ends settled", async () => {
    const answer = await authorized();
    const payment = handleOf(answer);
    const first = await flow().payments.capture(payment, { key: randomUUID(), amount: "4.00" });
    await flow().payments.waitForCapture(payment, first.captureId, END);
    expect(await getCapture(flow().database.app, first.captureId)).toMatchObject({
      status: "settled",
    });
    expect(await statusOf(answer)).toBe("authorized");
    const second = await flow().payments.capture(payment, { key: randomUUID() });
    expect(second).toMatchObject({ amountMinor: "600", final: true, replayed: false });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
  });

  test("that is voided ends voided; a repeat is replayed by a run that has ended; a capture then is refused", async () => {
    const answer = await authorized();
    const payment = handleOf(answer);
    const key = randomUUID();
    expect(await flow().payments.void(payment, { key })).toMatchObject({
      status: "voided",
      replayed: false,
    });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "voided" });
    expect(await flow().payments.void(payment, { key })).toMatchObject({
      status: "voided",
      replayed: true,
    });
    await expect(flow().payments.capture(payment, { key: randomUUID() })).rejects.toMatchObject({
      code: "payment_not_capturable",
      details: { replayed: false },
    });
    await expect(flow().payments.capture(payment, { key })).rejects.toMatchObject({
      code: "idempotency_key_reused",
      message: expect.stringContaining("used before, to void") as string,
    });
  });

  test("expires by its timer, and the money is back", async () => {
    const before = await getAccount(flow().database.app, "alice");
    const answer = await authorized("10.00", "1s");
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "expired" });
    const after = await getAccount(flow().database.app, "alice");
    expect(after?.availableMinor).toBe(before?.availableMinor);
  });

  test("that an operator cancels in the Web UI is voided; with a part captured the rest is released", async () => {
    const whole = await authorized();
    await flow().client.workflow.getHandle(whole.workflowId).cancel();
    expect(await flow().payments.waitForEnd(whole, END)).toMatchObject({ status: "voided" });
    const part = await authorized();
    await whileRelayIsPaused(async () => {
      await flow().payments.capture(handleOf(part), { key: randomUUID(), amount: "1.00" });
      await flow().client.workflow.getHandle(part.workflowId).cancel();
      await eventually(async () => expect(await statusOf(part)).toBe("captured"));
      // The run goes on until the capture is booked, and still answers.
      await expect(
        flow().payments.void(handleOf(part), { key: randomUUID() }),
      ).rejects.toMatchObject({ code: "payment_not_voidable" });
    });
    expect(await flow().payments.waitForEnd(part, END)).toMatchObject({ status: "settled" });
  });

  test("whose workflow an operator terminates is taken up by the next capture", async () => {
    const answer = await authorized();
    await flow().client.workflow.getHandle(answer.workflowId).terminate("by hand");
    await flow().payments.capture(handleOf(answer), { key: randomUUID() });
    await eventually(async () => expect(await statusOf(answer)).toBe("settled"));
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
  });

  test("survives kill -9 of the worker: the capture asked meanwhile is made once, the timer still ends the rest", async () => {
    const answer = await authorized("10.00", "15s");
    await flow().kill(worker);
    const capturing = flow().payments.capture(handleOf(answer), {
      key: randomUUID(),
      amount: "1.00",
    });
    worker = await flow().startWorker();
    expect(await capturing).toMatchObject({ amountMinor: "100" });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
    expect(await getPayment(flow().database.app, answer.paymentId)).toMatchObject({
      capturedMinor: 100n,
    });
  });
});

/** As the Reset button does: a new run from the first workflow task on. */
async function reset({ workflowId }: { workflowId: string }): Promise<void> {
  const { events = [] } = await flow().client.workflow.getHandle(workflowId).fetchHistory();
  const completed = events?.find((event) => event.workflowTaskCompletedEventAttributes);
  if (completed?.eventId === undefined) throw new Error("no workflow task was completed");
  await flow().client.workflowService.resetWorkflowExecution({
    namespace: flow().client.options.namespace,
    workflowExecution: { workflowId },
    reason: "by hand",
    requestId: randomUUID(),
    workflowTaskFinishEventId: completed.eventId,
  });
}

describe("a run that an operator resets in the Web UI", () => {
  test("of a settled payment ends settled again, booked once", async () => {
    const answer = await flow().payments.pay(aRequest());
    await flow().payments.waitForEnd(answer, END);
    const before = await getAccount(flow().database.app, "shop");
    await reset(answer);
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({
      paymentId: answer.paymentId,
      status: "settled",
    });
    expect(await getAccount(flow().database.app, "shop")).toEqual(before);
  });

  test("of an authorization goes on from its rows, and is captured once", async () => {
    const answer = await authorized();
    const part = { key: randomUUID(), amount: "1.00" };
    const first = await flow().payments.capture(handleOf(answer), part);
    await reset(answer);
    expect(await flow().payments.capture(handleOf(answer), part)).toMatchObject({
      captureId: first.captureId,
    });
    await flow().payments.waitForCapture(handleOf(answer), first.captureId, END);
    await flow().payments.void(handleOf(answer), { key: randomUUID() });
    expect(await flow().payments.waitForEnd(answer, END)).toMatchObject({ status: "settled" });
    expect(await getPayment(flow().database.app, answer.paymentId)).toMatchObject({
      capturedMinor: 100n,
    });
  });
});

describe("a payment", () => {
  test("is cancelled by its command before it is booked, and refuses that afterwards", async () => {
    const answer = await flow().payments.pay(aRequest());
    await flow().payments.waitForEnd(answer, END);
    await expect(flow().payments.cancel(handleOf(answer))).rejects.toMatchObject({
      code: "payment_not_cancellable",
    });
    await whileRelayIsPaused(async () => {
      const pending = await flow().payments.pay(aRequest());
      expect(await flow().payments.cancel(handleOf(pending))).toMatchObject({
        status: "cancelled",
        changed: true,
      });
      expect(await flow().payments.waitForEnd(pending, END)).toMatchObject({ status: "cancelled" });
      expect(await flow().payments.cancel(handleOf(pending))).toMatchObject({ changed: false });
    });
  });
});

describe("a refund", () => {
  async function settledPayment(): Promise<PaymentHandle> {
    const answer = await flow().payments.pay(aRequest());
    await flow().payments.waitForEnd(answer, END);
    return handleOf(answer);
  }

  test("is booked, and a repeat of its key answers with it, also by fifty callers at once", async () => {
    const payment = await settledPayment();
    const request = { key: randomUUID(), amount: "2.50", reason: "one shoe missing" };
    const answers = await Promise.all(
      Array.from({ length: 50 }, async () => await flow().payments.refund(payment, request)),
    );
    expect(new Set(answers.map(({ refundId }) => refundId)).size).toBe(1);
    expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1);
    const [answer] = answers;
    if (answer === undefined) throw new Error("no answer");
    expect(await flow().payments.waitForRefund(answer, END)).toMatchObject({ status: "settled" });
    expect(await flow().payments.refund(payment, request)).toMatchObject({
      refundId: answer.refundId,
      replayed: true,
    });
    expect(await getPayment(flow().database.app, payment.paymentId)).toMatchObject({
      refundedMinor: 250n,
      status: "settled",
    });
    await expect(
      flow().payments.refund(payment, { ...request, amount: "3.00" }),
    ).rejects.toMatchObject({ code: "idempotency_key_reused" });
    await expect(
      flow().payments.refund(payment, { key: randomUUID(), amount: "99.00" }),
    ).rejects.toMatchObject({ code: "refund_exceeds_captured" });
  });

  test("whose workflow an operator terminates is taken up by the supervisor", async () => {
    const payment = await settledPayment();
    await whileRelayIsPaused(async () => {
      const { refundId, workflowId } = await flow().payments.refund(payment, { key: randomUUID() });
      const handle = flow().client.workflow.getHandle(workflowId);
      await handle.cancel();
      expect(await getRefund(flow().database.app, refundId)).toMatchObject({ status: "pending" });
      await handle.terminate("by hand");
      await flow().database.admin(
        "SET session_replication_role = replica; UPDATE remit.refunds SET created_at = now() - interval '1 hour'; SET session_replication_role = origin",
      );
      const supervision = await flow().client.workflow.execute("supervisor", {
        workflowId: `supervise-${randomUUID()}`,
        taskQueue: "payments",
        args: [],
      });
      expect(supervision).toMatchObject({ openRefunds: 1, workflowsStarted: 1 });
      await relay().executeUpdate("resume", { args: [] });
      await eventually(async () =>
        expect(await getRefund(flow().database.app, refundId)).toMatchObject({ status: "settled" }),
      );
      expect(await handle.result()).toBeDefined();
    });
  });
});
