import { randomUUID } from "node:crypto";
import { DefaultLogger, Runtime } from "@temporalio/worker";
import { createAccount } from "../../src/database/account-queries.ts";
import { tracePayment } from "../../src/database/payment-trace.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { eventually } from "../support/eventually.ts";
import { useFlow } from "../support/flow.ts";
import { record, replayErrors } from "../support/histories.ts";
import type { NamedHistory } from "../support/histories.ts";

jest.setTimeout(90_000);
Runtime.install({ logger: new DefaultLogger("ERROR") });
const flow = useFlow();

const account = { currency: "EUR", kind: "customer", overdraftMinor: 0n } as const;
const request = {
  key: randomUUID(),
  from: "world:EUR",
  to: "alice",
  amount: "1.00",
  currency: "EUR",
};

describe("the histories of a real run", () => {
  test("replay on the code as it is: payment settled, refused, cancelled, ended at its receipt; captured, voided, expired; refund; ledger entry; relay paused and resumed", async () => {
    await createAccount(flow().database.app, { ...account, accountId: "alice" });
    await createAccount(flow().database.app, { ...account, accountId: "bob" });
    await flow().startWorker();
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    const settled = await flow().payments.pay(request);
    await flow().payments.waitForEnd(settled, { timeoutMs: 20_000 });
    const refused = { ...request, key: randomUUID(), from: "bob" };
    await expect(flow().payments.pay(refused)).rejects.toMatchObject({
      code: "insufficient_funds",
    });
    await relay.executeUpdate("pause", { args: [{ reason: "to cancel in between" }] });
    const cancelled = await flow().payments.pay({ ...request, key: randomUUID() });
    await flow().client.workflow.getHandle(cancelled.workflowId).cancel();
    await flow().payments.waitForEnd(cancelled, { timeoutMs: 20_000 });
    await relay.executeUpdate("resume", { args: [] });
    const manual = await Promise.all(
      ["1h", "1h", "1s"].map(
        async (expires) =>
          await flow().payments.pay({ ...request, key: randomUUID(), capture: "manual", expires }),
      ),
    );
    const handles = manual.map(({ paymentId, parameters }) => ({ paymentId, ...parameters }));
    const [captured, voided] = handles;
    if (captured === undefined || voided === undefined) throw new Error("no authorization");
    const part = { key: randomUUID(), amountMinor: "10" };
    const { captureId } = await flow().payments.capture(captured, part);
    await flow().payments.waitForCapture(captured, captureId, { timeoutMs: 20_000 });
    await flow().payments.void(captured, { key: randomUUID() });
    await flow().payments.void(voided, { key: randomUUID() });
    for (const answer of manual) {
      await flow().payments.waitForEnd(answer, { timeoutMs: 20_000 });
    }
    const refund = await flow().payments.refund(
      { paymentId: settled.paymentId, ...settled.parameters },
      { key: randomUUID(), amountMinor: "5" },
    );
    await flow().payments.waitForRefund(refund, { timeoutMs: 20_000 });
    const { messages } = await tracePayment(flow().database.app, settled.paymentId);
    const receipt = await flow().payments.pay(
      { ...request, key: randomUUID() },
      { endsAtReceipt: true },
    );
    const runs = {
      "payment-settled": settled.workflowId,
      "payment-ended-at-its-receipt": receipt.workflowId,
      "payment-refused": workflowIds.payment({ merchant: "default", key: refused.key }),
      "payment-cancelled": cancelled.workflowId,
      "authorization-captured": manual[0]?.workflowId ?? "",
      "authorization-voided": manual[1]?.workflowId ?? "",
      "authorization-expired": manual[2]?.workflowId ?? "",
      refund: refund.workflowId,
      "ledger-entry": workflowIds.ledgerEntry(messages[0]?.messageId ?? ""),
      "relay-paused-and-resumed": relay.workflowId,
    };
    const ids = Object.values(runs);
    const histories = await historiesOf(ids);
    if (process.env["REMIT_UPDATE_HISTORIES"] === "1") record(Object.keys(runs), histories);
    expect(await replayErrors(histories)).toEqual(ids.map(() => undefined));
  });

  test("replay where captures, their ends, voids and hints of the ledger came at once", async () => {
    const { payments } = flow();
    const manual = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const capture = "manual" as const;
        return await payments.pay({ ...request, key: randomUUID(), capture, expires: "1h" });
      }),
    );
    await Promise.all(
      manual.map(async ({ paymentId, parameters }) => {
        const handle = { paymentId, ...parameters };
        const { captureId } = await payments.capture(handle, {
          key: randomUUID(),
          amountMinor: "10",
        });
        await Promise.allSettled([
          ...[1, 2, 3].map(
            async () => await payments.waitForCapture(handle, captureId, { timeoutMs: 20_000 }),
          ),
          payments.capture(handle, { key: randomUUID(), amountMinor: "1" }),
          payments.void(handle, { key: randomUUID() }),
          payments.cancel(handle),
        ]);
      }),
    );
    for (const answer of manual) await payments.waitForEnd(answer, { timeoutMs: 20_000 });
    const ids = manual.map(({ workflowId }) => workflowId);
    expect(await replayErrors(await historiesOf(ids))).toEqual(ids.map(() => undefined));
  });
});

async function historiesOf(ids: readonly string[]): Promise<NamedHistory[]> {
  return await eventually(
    async () =>
      await Promise.all(
        ids.map(async (workflowId) => ({
          workflowId,
          history: await flow().client.workflow.getHandle(workflowId).fetchHistory(),
        })),
      ),
  );
}
