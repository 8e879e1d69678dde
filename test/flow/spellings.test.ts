import { randomUUID } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import { paymentStart } from "../../src/client/workflow-starts.ts";
import type { PaymentHandle } from "../../src/client/workflow-starts.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { fingerprintOf } from "../../src/domain/fingerprint.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { TASK_QUEUES, WORKFLOW_TYPES } from "../../src/workflows/messages.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

/** Clients in other languages, or by hand: values of another type or spelling than ours never pay under a key. */
jest.setTimeout(60_000);
const flow = useFlow();

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

function anInput(key: string): PaymentInput {
  const parameters = {
    merchant: "default",
    idempotencyKey: key,
    source: "alice",
    destination: "shop",
    amountMinor: "100",
    currency: "EUR",
    capture: "automatic",
    description: null,
  } as const;
  return {
    ...parameters,
    paymentId: uuidv7(),
    requestId: randomUUID(),
    fingerprint: fingerprintOf(parameters),
    notAfter: new Date(Date.now() + 10_000).toISOString(),
  };
}

async function keysLike(key: string): Promise<unknown[]> {
  return await flow().database.admin("SELECT key FROM remit.idempotency_keys WHERE key LIKE $1", [
    `%${key}%`,
  ]);
}

describe("a payment started by hand", () => {
  test.each<[string, (input: PaymentInput) => unknown]>([
    ["with its key in an array", (input) => ({ ...input, idempotencyKey: [input.idempotencyKey] })],
    ["with its merchant in an array", (input) => ({ ...input, merchant: [input.merchant] })],
    ["with an account in an array", (input) => ({ ...input, source: ["alice"] })],
    ["with an object as description", (input) => ({ ...input, description: { text: "x" } })],
    ["with a number as amount", (input) => ({ ...input, amountMinor: 100 })],
    ["with a number as request id", (input) => ({ ...input, requestId: 7 })],
    [
      "with a payment id in capitals",
      (input) => ({ ...input, paymentId: input.paymentId.toUpperCase() }),
    ],
    ["without a request id", (input) => ({ ...input, requestId: "" })],
    ["without a fingerprint", (input) => ({ ...input, fingerprint: null })],
    ["to be asked for ever", (input) => ({ ...input, notAfter: "9999-01-01T00:00:00Z" })],
    ["without an argument", () => null],
    ["with a text as its argument", () => "pay"],
  ])("%s records nothing, and its key is free for whom it belongs to", async (_what, bent) => {
    const key = `bent-${randomUUID()}`;
    const input = anInput(key);
    const { workflowId, taskQueue } = paymentStart(input);
    const run = await flow().client.workflow.start(WORKFLOW_TYPES.payment, {
      workflowId,
      taskQueue,
      args: [bent(input)],
    });

    expect(await run.result()).toMatchObject({ paymentId: null, status: "refused" });
    expect(await keysLike(key)).toEqual([]);
    const { parameters, replayed, paymentId } = await flow().payments.pay({
      key,
      from: "alice",
      to: "shop",
      amountMinor: "100",
      currency: "EUR",
    });
    expect([parameters.idempotencyKey, replayed]).toEqual([key, false]);
    expect(paymentId).not.toBe(input.paymentId);
  });

  test("under the id of another payment records nothing, and its key is free", async () => {
    const { paymentId } = await flow().payments.pay(aRequest());
    const key = `taken-${randomUUID()}`;
    const input = { ...anInput(key), paymentId };
    const { workflowId, taskQueue } = paymentStart(input);
    const run = await flow().client.workflow.start(WORKFLOW_TYPES.payment, {
      workflowId,
      taskQueue,
      args: [input],
    });

    expect(await run.result()).toMatchObject({ status: "refused", failureCode: "usage" });
    expect(await keysLike(key)).toEqual([]);
  });

  test.each([
    [WORKFLOW_TYPES.refund, workflowIds.refund({ merchant: "default", key: "r-bent" })],
    [WORKFLOW_TYPES.ledgerEntry, workflowIds.ledgerEntry("m-bent")],
  ])("a %s without an argument fails, and doesn't stay", async (type, workflowId) => {
    const taskQueue = type === WORKFLOW_TYPES.refund ? TASK_QUEUES.payments : TASK_QUEUES.ledger;
    for (const argument of [null, { messageId: ["m-bent"] }, { messageId: "m-bent" }]) {
      const run = await flow().client.workflow.start(type, {
        workflowId,
        taskQueue,
        args: [argument],
      });
      await expect(run.result()).rejects.toThrow("Workflow execution failed");
    }
  });
});

describe("an operation", () => {
  async function authorized(): Promise<PaymentHandle> {
    const request = { ...aRequest(), capture: "manual" as const };
    const { paymentId, parameters } = await flow().payments.pay(request);
    return { ...parameters, paymentId };
  }

  test("on an id in capitals is one on that payment, and leaves its run to all others", async () => {
    const { payments, client } = flow();
    const payment = await authorized();
    const { merchant, idempotencyKey: key, paymentId } = payment;
    const run = client.workflow.getHandle(workflowIds.payment({ merchant, key }));
    await run.terminate("lost");
    const shouted = { ...payment, paymentId: paymentId.toUpperCase() };

    const capture = await payments.capture(shouted, { key: `c-${key}`, amountMinor: "1" });

    expect(capture).toMatchObject({ paymentId, replayed: false });
    await payments.waitForCapture(payment, capture.captureId, { timeoutMs: 20_000 });
    const again = await payments.capture(payment, { key: `c-${key}`, amountMinor: "1" });
    expect(again).toMatchObject({ captureId: capture.captureId, replayed: true });
    expect(await payments.void(payment, { key: `v-${key}` })).toMatchObject({ paymentId });
  });

  test("by hand on an id in capitals takes nothing up", async () => {
    const payment = await authorized();
    const { merchant, idempotencyKey: key, paymentId } = payment;
    const run = flow().client.workflow.getHandle(workflowIds.payment({ merchant, key }));
    await run.terminate("lost");
    const stranger = await flow().client.workflow.start(WORKFLOW_TYPES.manualPayment, {
      workflowId: run.workflowId,
      taskQueue: TASK_QUEUES.manualPayments,
      args: [{ paymentId: paymentId.toUpperCase() }],
    });

    expect(await stranger.result()).toMatchObject({ failureCode: "payment_not_found" });
    await flow().payments.void(payment, { key: `v-${key}` });
    await eventually(async () => {
      const { status } = (await getPayment(flow().database.app, paymentId)) ?? {};
      expect(status).toBe("voided");
    });
  });

  test("is of the payment's currency, whatever its handle says", async () => {
    const { payments } = flow();
    const payment = await authorized();
    const { paymentId, idempotencyKey: key } = payment;
    for (const currency of ["JPY", "BHD", "USD"]) {
      const bent = { ...payment, currency };
      const request = { key: `m-${currency}-${key}`, amount: "2" };
      await expect(payments.capture(bent, request)).rejects.toMatchObject({
        code: "currency_mismatch",
      });
    }
    const bent = { ...payment, currency: "BHD" };
    const part = { key: `c-${key}`, amount: "2.00", currency: "EUR" };
    const capture = await payments.capture(bent, part);
    expect(capture).toMatchObject({ amountMinor: "200" });
    await payments.waitForCapture(payment, capture.captureId, { timeoutMs: 20_000 });
    await payments.void(payment, { key: `v-${key}` });
    const refund = { key: `r-${key}`, amount: "0.5" };
    await expect(payments.refund(bent, refund)).rejects.toMatchObject({
      code: "currency_mismatch",
    });
    const { refundedMinor } = (await getPayment(flow().database.app, paymentId)) ?? {};
    expect(refundedMinor).toBe(0n);
  });

  test("that refunded isn't called refused since its key was used for something else", async () => {
    const { payments } = flow();
    const paid = await payments.pay(aRequest());
    await payments.waitForEnd(paid, { timeoutMs: 20_000 });
    const payment = { ...paid.parameters, paymentId: paid.paymentId };
    const key = `r-${randomUUID()}`;
    const refund = await payments.refund(payment, { key, amountMinor: "5" });
    expect(await payments.waitForRefund(refund, { timeoutMs: 20_000 })).toMatchObject({
      status: "settled",
    });
    await expect(payments.refund(payment, { key, amountMinor: "6" })).rejects.toMatchObject({
      code: "idempotency_key_reused",
    });

    await expect(payments.waitForRefund(refund, { timeoutMs: 20_000 })).rejects.toMatchObject({
      code: "outcome_unknown",
      message: expect.stringContaining(`remit payment get ${paid.paymentId}`) as string,
    });
  });

  test("is refused before anything is sent where its currency or payment can't be one", async () => {
    const payment = await authorized();
    const { payments } = flow();
    for (const currency of ["\ud800", "\0", "eur", "XXX", 978 as unknown as string]) {
      const request = { key: `k-${randomUUID()}`, currency };
      await expect(payments.refund(payment, request)).rejects.toMatchObject({
        code: "currency_unknown",
      });
      await expect(payments.capture(payment, request)).rejects.toMatchObject({
        code: "currency_unknown",
      });
    }
    for (const paymentId of ["abc", `{${payment.paymentId}}`, null as unknown as string]) {
      const stray = { ...payment, paymentId };
      await expect(payments.refund(stray, { key: "k" })).rejects.toMatchObject({
        code: "payment_not_found",
      });
      await expect(payments.cancel(stray)).rejects.toMatchObject({ code: "payment_not_found" });
    }
    await payments.void(payment, { key: `v-${payment.idempotencyKey}` });
  });
});
