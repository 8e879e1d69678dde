import { randomUUID } from "node:crypto";
import { DefaultLogger, Runtime, Worker } from "@temporalio/worker";
import type { TestWorkflowEnvironment } from "@temporalio/testing";
import { createPaymentClient } from "../../src/client/payment-client.ts";
import type { PaymentAnswer, PaymentClient } from "../../src/client/payment-client.ts";
import type { PaymentHandle } from "../../src/client/workflow-starts.ts";
import { SEARCH_ATTRIBUTES } from "../../src/domain/search-attributes.ts";
import { workflowBundle } from "../../src/worker/workflow-bundle.ts";
import { TASK_QUEUES, ledgerDecisionSignal } from "../../src/workflows/messages.ts";
import { createAuthorizationDouble } from "../support/authorization-double.ts";
import type { AuthorizationDouble } from "../support/authorization-double.ts";
import { eventually } from "../support/eventually.ts";
import { startTimeSkipping } from "../support/time-skipping.ts";

/**
 * The timers of an authorization, on a server that skips the days in between. PostgreSQL's clock can't skip with it, so
 * the activities are doubles that the model of test/model decides; test/flow has the short expiry on the real thing.
 */
jest.setTimeout(60_000);
Runtime.install({ logger: new DefaultLogger("ERROR") });

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
const KEYWORD = 2;
let env: TestWorkflowEnvironment;
let bundle: { code: string };

beforeAll(async () => {
  env = await startTimeSkipping();
  bundle = await workflowBundle(new DefaultLogger("ERROR"));
  await env.connection.operatorService.addSearchAttributes({
    namespace: "default",
    searchAttributes: Object.fromEntries(SEARCH_ATTRIBUTES.map((name) => [name, KEYWORD])),
  });
});
afterAll(async () => {
  await env?.teardown();
});

interface Scene extends AuthorizationDouble {
  readonly payments: PaymentClient;
  readonly answer: PaymentAnswer;
  readonly handle: PaymentHandle;
  /** Lets the time pass to so long after the start. */
  readonly until: (ms: number) => Promise<void>;
  /** Waits for the end of the run, over all its timers; answers with its status and when that was. */
  readonly end: () => Promise<{ status: string; afterMs: number }>;
  /** Tells the run that the ledger has decided, as the ledger does. */
  readonly hint: () => Promise<void>;
  readonly timesCalled: (name: string) => number;
}

/** An authorization of 100.00 EUR whose run has begun. */
async function authorized(
  { expires, clockBehindMs = 0 }: { expires?: string | undefined; clockBehindMs?: number },
  play: (scene: Scene) => Promise<void>,
): Promise<void> {
  const now = async (): Promise<number> => await env.currentTimeMs();
  const double = createAuthorizationDouble({ now, clockBehindMs });
  const worker = await Worker.create({
    connection: env.nativeConnection,
    taskQueue: TASK_QUEUES.manualPayments,
    workflowBundle: bundle,
    activities: { ...double.activities },
  });
  await worker.runUntil(async () => {
    const payments = createPaymentClient({ client: env.client, uiUrl: null });
    const startedMs = await now();
    const answer = await payments.pay({
      key: randomUUID(),
      from: "payer",
      to: "seller",
      amount: "100.00",
      currency: "EUR",
      capture: "manual",
      expires,
    });
    const run = env.client.workflow.getHandle<() => Promise<{ status: string }>>(answer.workflowId);
    await play({
      ...double,
      payments,
      answer,
      handle: { paymentId: answer.paymentId, ...answer.parameters },
      until: async (ms) => await env.sleep(startedMs + ms - (await now())),
      end: async () => {
        const { status } = await run.result();
        // Not the time now: where nothing is left to do, the server goes on to the time of a timer that was cancelled.
        const { closeTime } = await run.describe();
        return { status, afterMs: Number(closeTime) - startedMs };
      },
      hint: async () =>
        await run.signal(ledgerDecisionSignal, {
          status: "settled",
          failureCode: null,
          messageId: null,
        }),
      timesCalled: (name) => double.calls.filter((call) => call.name === name).length,
    });
  });
}

/** The server's clock also runs while work is done. */
const WORK_MS = 20_000;

function expectAbout(foundMs: number, expectedMs: number): void {
  expect(foundMs).toBeGreaterThanOrEqual(expectedMs);
  expect(foundMs).toBeLessThan(expectedMs + WORK_MS);
}

describe("an authorization", () => {
  test.each([
    ["after 7 days where nothing is said", undefined, 7],
    ["after 30 days where these are asked for", "30d", 30],
    ["after a day where that is asked for", "1d", 1],
  ])("expires %s, and the money is back", async (_when, expires, days) => {
    await authorized({ expires }, async (scene) => {
      await scene.until(days * DAY_MS - 5 * MINUTE_MS);
      expect([scene.payment().status, scene.held()]).toEqual(["authorized", 10_000n]);
      expect(scene.timesCalled("expirePayment")).toBe(0);
      const { status, afterMs } = await scene.end();
      expect([status, scene.payment().status, scene.held()]).toEqual(["expired", "expired", 0n]);
      expectAbout(afterMs, days * DAY_MS);
      expect(scene.timesCalled("expirePayment")).toBe(1);
    });
  });

  test("captured before its expiry is settled then, and no timer is left", async () => {
    await authorized({}, async (scene) => {
      await scene.until(3 * DAY_MS);
      await scene.payments.capture(scene.handle, { key: randomUUID() });
      scene.book();
      await scene.hint();
      const { status, afterMs } = await scene.end();
      expect([status, scene.payment().captured, scene.held()]).toEqual(["settled", 10_000n, 0n]);
      expectAbout(afterMs, 3 * DAY_MS);
      await scene.until(10 * DAY_MS);
      expect(scene.timesCalled("expirePayment")).toBe(0);
    });
  });

  test("voided before its expiry ends at once, and no timer is left", async () => {
    await authorized({}, async (scene) => {
      await scene.until(6 * DAY_MS);
      await scene.payments.void(scene.handle, { key: randomUUID() });
      const { status, afterMs } = await scene.end();
      expect([status, scene.held()]).toEqual(["voided", 0n]);
      expectAbout(afterMs, 6 * DAY_MS);
      await scene.until(10 * DAY_MS);
      expect(scene.timesCalled("expirePayment")).toBe(0);
    });
  });

  test("captured in part keeps its timer, and the expiry gives the remainder back", async () => {
    await authorized({}, async (scene) => {
      for (const day of [1, 3]) {
        await scene.until(day * DAY_MS);
        await scene.payments.capture(scene.handle, { key: randomUUID(), amount: "10.00" });
        scene.book();
        await scene.hint();
      }
      expect([scene.payment().status, scene.held()]).toEqual(["authorized", 8_000n]);
      const { status, afterMs } = await scene.end();
      expect([status, scene.payment().captured, scene.held()]).toEqual(["settled", 2_000n, 0n]);
      expectAbout(afterMs, 7 * DAY_MS);
      expect(scene.timesCalled("expirePayment")).toBe(1);
    });
  });

  test("that expires with a capture on its way gives the rest back and waits for that one", async () => {
    await authorized({}, async (scene) => {
      await scene.until(6 * DAY_MS);
      await scene.payments.capture(scene.handle, { key: randomUUID(), amount: "10.00" });
      await scene.until(8 * DAY_MS);
      expect([scene.payment().status, scene.held()]).toEqual(["captured", 1_000n]);
      expect(scene.timesCalled("expirePayment")).toBe(1);
      scene.book();
      await scene.hint();
      const { status, afterMs } = await scene.end();
      expect([status, scene.payment().captured, scene.held()]).toEqual(["settled", 1_000n, 0n]);
      expectAbout(afterMs, 8 * DAY_MS);
    });
  });

  test("whose last capture is booked without a hint is found settled within ten minutes", async () => {
    await authorized({}, async (scene) => {
      await scene.payments.capture(scene.handle, { key: randomUUID() });
      // At its start, and after the capture.
      await eventually(() => expect(scene.timesCalled("readPayment")).toBe(2));
      scene.book();
      const { status, afterMs } = await scene.end();
      expect(status).toBe("settled");
      expectAbout(afterMs, 10 * MINUTE_MS);
    });
  });

  test("is tried again each second where PostgreSQL's clock is behind the server's", async () => {
    await authorized({ expires: "1d", clockBehindMs: 5_000 }, async (scene) => {
      const { status, afterMs } = await scene.end();
      expect(status).toBe("expired");
      expectAbout(afterMs, DAY_MS + 5_000);
      expect(scene.timesCalled("expirePayment")).toBeGreaterThan(2);
      expect(scene.timesCalled("expirePayment")).toBeLessThan(8);
    });
  });

  test("that is over can't be captured, whatever the timer does", async () => {
    await authorized({ expires: "1d" }, async (scene) => {
      await scene.until(DAY_MS + MINUTE_MS);
      await expect(
        scene.payments.capture(scene.handle, { key: randomUUID() }),
      ).rejects.toMatchObject({ code: "payment_not_capturable" });
      expect(scene.payment().status).toBe("expired");
    });
  });
});
