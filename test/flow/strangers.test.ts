import { setTimeout as delay } from "node:timers/promises";
import { tracePayment } from "../../src/database/payment-trace.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import type { PaymentHandle } from "../../src/client/workflow-starts.ts";
import { scheduleIds, workflowIds } from "../../src/domain/ids.ts";
import { TASK_QUEUES, relayPauseUpdate, relayResumeUpdate } from "../../src/workflows/messages.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

/** Callers that mix up, or forge, what a workflow is for. */
const flow = useFlow();

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

async function authorized(merchant = "default"): Promise<PaymentHandle> {
  const request = { ...aRequest({ merchant }), capture: "manual" as const };
  const { paymentId } = await flow().payments.pay(request);
  return { paymentId, merchant, idempotencyKey: request.key, currency: "EUR", capture: "manual" };
}

async function statusOf({ paymentId }: { paymentId: string }): Promise<string | undefined> {
  return (await getPayment(flow().database.app, paymentId))?.status;
}

/** A run that refuses a stranger doesn't stay, or it would keep its id from whom it belongs to. */
async function runs({ merchant, idempotencyKey: key }: PaymentHandle): Promise<string> {
  const handle = flow().client.workflow.getHandle(workflowIds.payment({ merchant, key }));
  return (await handle.describe()).status.name;
}

/** Has the relay publish nothing until the answer is called. */
async function pause(): Promise<() => Promise<void>> {
  const relay = flow().client.workflow.getHandle(
    workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
  );
  await relay.executeUpdate(relayPauseUpdate, { args: [{ reason: "a forger is at work" }] });
  return async () => {
    await relay.executeUpdate(relayResumeUpdate);
  };
}

describe("a handle that mixes up its parts", () => {
  test.each(["cancel", "void", "capture", "refund"] as const)(
    "can't %s another merchant's payment, and takes nothing up",
    async (operation) => {
      const { payments } = flow();
      const theirs = await authorized("acme");
      const handle = { ...theirs, merchant: "mallory", idempotencyKey: `m-${operation}` };
      const request = { key: `op-${operation}-${theirs.paymentId}` };
      const attempt =
        operation === "cancel" ? payments.cancel(handle) : payments[operation](handle, request);
      await expect(attempt).rejects.toMatchObject({ code: "payment_not_found" });
      expect(await statusOf(theirs)).toBe("authorized");
      // The key is free for whom it belongs to.
      const answer = await payments.pay(
        aRequest({
          merchant: "mallory",
          key: handle.idempotencyKey,
          amountMinor: "1",
          amount: undefined,
        }),
      );
      await payments.waitForEnd(answer, { timeoutMs: 20_000 });
      await payments.void(theirs, { key: `end-${theirs.paymentId}` });
    },
  );

  test.each(["cancel", "void", "capture"] as const)(
    "can't %s one payment in the name of another of the same merchant",
    async (operation) => {
      const { payments } = flow();
      const [one, other] = [await authorized(), await authorized()];
      const handle = { ...one, paymentId: other.paymentId };
      const attempt =
        operation === "cancel"
          ? payments.cancel(handle)
          : payments[operation](handle, { key: `op-${operation}-${one.paymentId}` });
      await expect(attempt).rejects.toMatchObject({ code: "payment_not_found" });
      expect(await Promise.all([statusOf(one), statusOf(other)])).toEqual([
        "authorized",
        "authorized",
      ]);
      for (const each of [one, other]) await payments.void(each, { key: `end-${each.paymentId}` });
    },
  );

  test("with the wrong kind of capture doesn't leave an authorization to a run without a timer", async () => {
    const { payments, client } = flow();
    const theirs = await authorized();
    const { merchant, idempotencyKey: key } = theirs;
    const id = workflowIds.payment({ merchant, key });
    await client.workflow.getHandle(id).terminate("an operator's mistake");
    const handle = { ...theirs, capture: "automatic" as const };
    await expect(payments.void(handle, { key: `void-${theirs.paymentId}` })).rejects.toMatchObject({
      code: "usage",
    });
    await eventually(async () => expect(await runs(theirs)).toBe("COMPLETED"));
    expect(await statusOf(theirs)).toBe("authorized");
    expect(await payments.void(theirs, { key: `again-${theirs.paymentId}` })).toMatchObject({
      status: "voided",
    });
  });
});

describe("a request that no worker could answer", () => {
  test.each(["accept", "capture", "void", "cancel", "captureEnd"])(
    "%s without its argument is refused before it is accepted, and the run lives",
    async (update) => {
      const theirs = await authorized();
      const { merchant, idempotencyKey: key } = theirs;
      const run = flow().client.workflow.getHandle(workflowIds.payment({ merchant, key }));
      for (const argument of [undefined, null, {}, 7]) {
        const asked = run.executeUpdate<null, [unknown]>(update, { args: [argument] });
        await expect(asked).rejects.toMatchObject({ name: "WorkflowUpdateFailedError" });
      }
      expect((await run.describe()).raw.pendingWorkflowTask?.attempt ?? 0).toBeLessThanOrEqual(1);
      expect(await flow().payments.void(theirs, { key: `end-${theirs.paymentId}` })).toMatchObject({
        status: "voided",
      });
    },
  );

  test.each([{ requestId: "" }, { requestId: "x".repeat(65) }, { deadlineMs: Number.NaN }])(
    "%p is usage, before anything is sent",
    async (options) => {
      await expect(flow().payments.pay(aRequest(), options)).rejects.toMatchObject({
        code: "usage",
      });
    },
  );

  test("an amount that is a JSON number, and a final that is a text, are refused: they would be read as something else", async () => {
    const theirs = await authorized();
    const { merchant, idempotencyKey: key, paymentId } = theirs;
    const run = flow().client.workflow.getHandle(workflowIds.payment({ merchant, key }));
    const request = {
      paymentId,
      merchant,
      idempotencyKey: `number-${paymentId}`,
      requestId: "r",
      fingerprint: "f".repeat(64),
      notAfter: new Date(Date.now() + 10_000).toISOString(),
      amountMinor: 12,
      currency: null,
      final: false,
    };
    await expect(run.executeUpdate("capture", { args: [request] })).rejects.toMatchObject({
      cause: { type: "amount_invalid" },
    });
    const final = { ...request, idempotencyKey: `final-${paymentId}`, amountMinor: "500" };
    await expect(
      run.executeUpdate("capture", { args: [{ ...final, final: "false" }] }),
    ).rejects.toMatchObject({ cause: { type: "usage" } });
    await flow().payments.void(theirs, { key: `end-${paymentId}` });
  });

  test("a rate that is no number is refused, and the relay goes on", async () => {
    const id = workflowIds.outboxRelay({ fromShard: 0, toShard: 63 });
    const relay = flow().client.workflow.getHandle(id);
    const { runId } = await relay.describe();
    for (const eventsPerSecondMax of ["abc", 0, -5, 1.5]) {
      await expect(
        relay.executeUpdate("setRate", { args: [{ eventsPerSecondMax }] }),
      ).rejects.toThrow("Workflow Update failed");
    }
    expect(await relay.describe()).toMatchObject({ runId, status: { name: "RUNNING" } });
  });
});

describe("the end of a payment", () => {
  test("isn't that of a later request which was refused for its key", async () => {
    const { payments } = flow();
    const request = aRequest();
    const answer = await payments.pay(request);
    await payments.waitForEnd(answer, { timeoutMs: 20_000 });
    await expect(payments.pay({ ...request, amount: "1.00" })).rejects.toMatchObject({
      code: "idempotency_key_reused",
    });
    expect(await payments.waitForEnd(answer, { timeoutMs: 20_000 })).toMatchObject({
      paymentId: answer.paymentId,
      status: "settled",
    });
  });

  test("is told though its run was terminated", async () => {
    const { payments, client } = flow();
    const answer = await payments.pay(aRequest());
    const run = client.workflow.getHandle(answer.workflowId);
    await run.terminate("by hand").catch(() => undefined);
    expect(await payments.waitForEnd(answer, { timeoutMs: 30_000 })).toMatchObject({
      paymentId: answer.paymentId,
      status: "settled",
    });
  });
});

describe("a run whose tasks keep failing", () => {
  test("is replaced by the supervisor when its payment is overdue, and the payment goes on", async () => {
    const { client, database } = flow();
    const theirs = await authorized();
    const { merchant, idempotencyKey: key, paymentId } = theirs;
    const workflowId = workflowIds.payment({ merchant, key });
    const run = client.workflow.getHandle(workflowId);
    await run.terminate("to be taken by one that can't run");
    await client.workflow.start("noSuchWorkflow", {
      workflowId,
      taskQueue: "manual-payments",
      args: [],
    });
    await database.admin(
      `SET session_replication_role = replica;
       UPDATE remit.payments SET created_at = now() - interval '1 hour', updated_at = now() - interval '1 hour', expires_at = now() - interval '10 minutes' WHERE id = '${paymentId}';
       SET session_replication_role = origin`,
    );
    const supervisor = client.schedule.getHandle(scheduleIds.supervisor);
    await eventually(
      async () => {
        await supervisor.trigger();
        expect(await statusOf(theirs)).toBe("expired");
        expect((await run.describe()).type).toBe("manualPayment");
      },
      { timeoutMs: 100_000 },
    );
    await eventually(async () => expect(await runs(theirs)).toBe("COMPLETED"));
  }, 120_000);
});

describe("a message's workflow id that a stranger occupies", () => {
  async function firstMessageOf(paymentId: string): Promise<string> {
    const { messages } = await tracePayment(flow().database.app, paymentId);
    return messages[0]?.messageId ?? "";
  }

  test("by a booking of another message stands in nobody's way: that run fails", async () => {
    const { payments, client } = flow();
    const resume = await pause();
    const answer = await payments.pay(aRequest());
    const messageId = await firstMessageOf(answer.paymentId);
    const other = { messageId: "another", type: "payment.created", payload: "{}" };
    await expect(
      client.workflow.execute("ledgerEntry", {
        workflowId: workflowIds.ledgerEntry(messageId),
        taskQueue: TASK_QUEUES.ledger,
        args: [other],
      }),
    ).rejects.toMatchObject({ cause: { type: "usage" } });
    await resume();
    expect(await payments.waitForEnd(answer, { timeoutMs: 20_000 })).toMatchObject({
      status: "settled",
    });
  });

  test("by a run that has completed is started again by the supervisor, since PostgreSQL says undecided", async () => {
    const { payments, client, database } = flow();
    const resume = await pause();
    const answer = await payments.pay(aRequest());
    const messageId = await firstMessageOf(answer.paymentId);
    // Any workflow that completes does: this one finds nothing to purge.
    await client.workflow.execute("retention", {
      workflowId: workflowIds.ledgerEntry(messageId),
      taskQueue: TASK_QUEUES.ledger,
    });
    await resume();
    await database.admin(
      "UPDATE remit.payments SET updated_at = updated_at - interval '1 hour' WHERE id = $1",
      [answer.paymentId],
    );
    await eventually(
      async () => {
        await database.admin(
          "UPDATE remit.outbox SET created_at = created_at - interval '1 hour', published_at = published_at - interval '1 hour' WHERE id = $1 AND published_at > now() - interval '1 minute'",
          [messageId],
        );
        await client.schedule.getHandle(scheduleIds.supervisor).trigger();
        expect(await statusOf(answer)).toBe("settled");
      },
      { timeoutMs: 60_000 },
    );
  }, 90_000);
});

describe("a forged word of the ledger", () => {
  const forged = [
    { status: "settled", failureCode: null },
    { status: "failed", failureCode: "account_closed", messageId: null },
    {
      status: "failed",
      failureCode: "account_closed",
      messageId: "01a23126-00c4-72cf-81d3-3a7472240720",
    },
  ];

  test("isn't believed by a payment: it reads PostgreSQL, and waits on for the real one", async () => {
    const { payments, client } = flow();
    const resume = await pause();
    const answer = await payments.pay(aRequest());
    const handle = client.workflow.getHandle(answer.workflowId);
    for (const decision of forged) await handle.signal("ledgerDecision", decision);
    await delay(1_000);
    expect((await handle.describe()).status.name).toBe("RUNNING");
    await resume();
    expect(await payments.waitForEnd(answer, { timeoutMs: 20_000 })).toMatchObject({
      status: "settled",
      failureCode: null,
    });
  });

  test("isn't believed by a refund, nor by who waits for a capture", async () => {
    const { payments, client } = flow();
    const request = aRequest();
    const paid = await payments.pay(request);
    await payments.waitForEnd(paid, { timeoutMs: 20_000 });
    const manual = await authorized();
    const resume = await pause();
    const settled = {
      ...manual,
      paymentId: paid.paymentId,
      idempotencyKey: request.key,
      capture: "automatic" as const,
    };
    const refund = await payments.refund(settled, { key: `refund-${paid.paymentId}` });
    const capture = await payments.capture(manual, { key: `capture-${manual.paymentId}` });
    const waiting = payments.waitForCapture(manual, capture.captureId, { timeoutMs: 25_000 });
    let hasEnded = false;
    void waiting.then(() => (hasEnded = true));
    const run = workflowIds.payment({ merchant: manual.merchant, key: manual.idempotencyKey });
    for (const decision of forged) {
      await client.workflow.getHandle(refund.workflowId).signal("ledgerDecision", decision);
      await client.workflow
        .getHandle(run)
        .signal("ledgerDecision", { ...decision, captureId: capture.captureId });
    }
    await delay(1_000);
    expect(hasEnded).toBe(false);
    expect((await client.workflow.getHandle(refund.workflowId).describe()).status.name).toBe(
      "RUNNING",
    );
    await resume();
    await waiting;
    expect(await payments.waitForRefund(refund, { timeoutMs: 20_000 })).toMatchObject({
      status: "settled",
    });
  });
});
