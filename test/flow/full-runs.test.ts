import { getPayment } from "../../src/database/payment-queries.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { expectInvariants } from "../support/database.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

/** Temporal takes so many Updates a run and no more: a client in a loop mustn't shut a payment's run against all others. */
jest.setTimeout(120_000);
const flow = useFlow();
/** The server of the tests calls a run full at 100. */
const REFUSALS = 130;

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

test("an authorization that refused more captures than its run may take is captured and voided by the next run", async () => {
  const { payments, client, database } = flow();
  const request = { ...aRequest(), capture: "manual" as const };
  const { paymentId, parameters, workflowId } = await payments.pay(request);
  const payment = { ...parameters, paymentId };
  const first = await client.workflow.getHandle(workflowId).describe();
  for (let nth = 0; nth < REFUSALS; nth += 1) {
    const beyond = { key: `beyond-${nth}-${paymentId}`, amount: "9999.00" };
    await expect(payments.capture(payment, beyond)).rejects.toMatchObject({
      code: "capture_exceeds_authorized",
    });
  }

  const capture = await payments.capture(payment, { key: `c-${paymentId}`, amountMinor: "10" });
  await payments.waitForCapture(payment, capture.captureId, { timeoutMs: 20_000 });
  expect(await payments.pay(request)).toMatchObject({ paymentId, replayed: true });
  await payments.void(payment, { key: `v-${paymentId}` });

  const last = client.workflow.getHandle(workflowIds.payment({ ...parameters, key: request.key }));
  expect(await last.result()).toMatchObject({ paymentId, status: "settled" });
  expect((await last.describe()).runId).not.toBe(first.runId);
  expect(await getPayment(database.app, paymentId)).toMatchObject({
    status: "settled",
    capturedMinor: 10n,
  });
});
