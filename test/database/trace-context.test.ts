import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { cancelPayment } from "../../src/activities/cancel-payment.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import { voidPayment } from "../../src/activities/end-authorization.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { changeAccountStatus } from "../../src/database/account-queries.ts";
import { EVENT_TYPES, eventSchema } from "../../src/domain/events.ts";
import { anOperation, newestMessage, useDatabase } from "../support/database.ts";
import { capture, expire, openScene } from "../support/money-operations.ts";
import type { Scene } from "../support/money-operations.ts";

/** A request's trace is carried by the events that it leads to, by those of the booking too; nobody else's is. */

const database = useDatabase();
let scene: Scene;

beforeEach(async () => {
  scene = await openScene(database());
});

const [PAID, CAPTURED, VOIDED, REFUNDED, CANCELLED] = ["1", "2", "3", "4", "5"].map(
  (digit) => `00-${digit.repeat(32)}-${digit.repeat(16)}-01`,
) as [string, string, string, string, string];
const ALL = { amountMinor: null, currency: null };

interface Traced {
  readonly type: string;
  readonly traceparent: string | null;
}

/** Of each event the attribute that the broker gets; the document says the same, or the test fails. */
async function traces(aggregateId: string): Promise<Traced[]> {
  const rows = await database().admin<Traced & { payload: object; document: string | null }>(
    `SELECT type, headers ->> 'traceparent' AS traceparent, payload, payload ->> 'traceparent' AS document
       FROM remit.outbox
      WHERE aggregate_id = $1
      ORDER BY aggregate_version`,
    [aggregateId],
  );
  for (const { type, traceparent, payload, document } of rows) {
    expect(document).toBe(traceparent);
    const known = EVENT_TYPES.find((one) => one === type) ?? "payment.created";
    expect(eventSchema(known).safeParse(payload).error).toBeUndefined();
  }
  return rows.map(({ type, traceparent }) => ({ type, traceparent }));
}

async function book(paymentId: string, type: string): Promise<void> {
  await applyLedgerEntries(
    database().app,
    await newestMessage(database().admin, { paymentId, type }),
  );
}

describe("the trace of a request", () => {
  test("is in the event that records it, and in the one that the booking writes", async () => {
    const paymentId = await scene.settled({ traceparent: PAID });
    expect(await traces(paymentId)).toEqual([
      { type: "payment.created", traceparent: PAID },
      { type: "payment.settled", traceparent: PAID },
    ]);
  });

  test("is in the event of a booking that the ledger refuses", async () => {
    const paymentId = await scene.pending({ traceparent: PAID });
    await changeAccountStatus(database().app, { accountId: scene.seller, status: "closed" });
    await book(paymentId, "payment.created");
    expect((await traces(paymentId)).at(-1)).toEqual({
      type: "payment.failed",
      traceparent: PAID,
    });
  });

  test("is each operation's own, through its booking", async () => {
    const paymentId = await scene.authorized({ traceparent: PAID });
    const part = { ...ALL, amountMinor: "4000", final: false, traceparent: CAPTURED };
    await capturePayment(database().app, anOperation(paymentId, part));
    await book(paymentId, "payment.captured");
    await voidPayment(database().app, anOperation(paymentId, { traceparent: VOIDED }));
    expect(await traces(paymentId)).toEqual([
      { type: "payment.created", traceparent: PAID },
      { type: "payment.authorized", traceparent: PAID },
      { type: "payment.captured", traceparent: CAPTURED },
      { type: "payment.released", traceparent: VOIDED },
      { type: "payment.settled", traceparent: VOIDED },
    ]);
  });

  test("is the last capture's where that settles the payment", async () => {
    const paymentId = await scene.authorized({ traceparent: PAID });
    const rest = { ...ALL, final: false, traceparent: CAPTURED };
    await capturePayment(database().app, anOperation(paymentId, rest));
    await book(paymentId, "payment.captured");
    expect((await traces(paymentId)).slice(2)).toEqual([
      { type: "payment.captured", traceparent: CAPTURED },
      { type: "payment.settled", traceparent: CAPTURED },
    ]);
  });

  test("is in a refund's events", async () => {
    const paymentId = await scene.settled({ traceparent: PAID });
    const refundId = "01a22f9c-e76e-76c9-b249-186963a5a6bd";
    const parameters = { ...ALL, reason: null, refundId, traceparent: REFUNDED };
    await recordRefund(database().app, anOperation(paymentId, parameters));
    await book(paymentId, "refund.created");
    expect(await traces(refundId)).toEqual([
      { type: "refund.created", traceparent: REFUNDED },
      { type: "refund.settled", traceparent: REFUNDED },
    ]);
  });

  test.each(["pending", "authorized"] as const)(
    "is in the cancel of a payment that is %s",
    async (how) => {
      const paymentId = await scene[how]({ traceparent: PAID });
      await cancelPayment(database().app, { paymentId, traceparent: CANCELLED });
      expect((await traces(paymentId)).at(-1)?.traceparent).toBe(CANCELLED);
    },
  );

  test("is nobody's where time ends an authorization, or nobody gave one", async () => {
    const paymentId = await scene.authorized({ traceparent: PAID, expiresInSeconds: 1 });
    await database().admin("SELECT pg_sleep(1.1)");
    expect(await expire(paymentId)(database().app)).toBe("expired");
    expect((await traces(paymentId)).at(-1)).toEqual({
      type: "payment.expired",
      traceparent: null,
    });
    const untraced = await scene.authorized();
    expect(await capture(untraced)(database().app)).toBe("recorded");
    await book(untraced, "payment.captured");
    expect(new Set((await traces(untraced)).map(({ traceparent }) => traceparent))).toEqual(
      new Set([null]),
    );
  });

  test.each([
    ["another version", `01-${"1".repeat(32)}-${"1".repeat(16)}-01`],
    ["no trace", `00-${"0".repeat(32)}-${"1".repeat(16)}-01`],
    ["no parent", `00-${"1".repeat(32)}-${"0".repeat(16)}-01`],
    ["upper case", `00-${"A".repeat(32)}-${"1".repeat(16)}-01`],
    ["what no attribute may hold", '00-"\\'],
    ["a megabyte", "0".repeat(1_000_000)],
    ["nothing", ""],
    ["no text", 7],
  ])("is left out where it is %s, and the payment goes on", async (_, traceparent) => {
    const paymentId = await scene.settled({ traceparent: traceparent as string });
    expect((await traces(paymentId)).map((event) => event.traceparent)).toEqual([null, null]);
  });

  test("is no part of what is asked: a repeat with another one is a repeat, and the first stays", async () => {
    const input = scene.order({ traceparent: PAID });
    await recordPayment(database().app, input);
    const again = { ...input, requestId: "another-caller", traceparent: CAPTURED };
    expect(await recordPayment(database().app, again)).toMatchObject({ outcome: "repeated" });
    expect(await traces(input.paymentId)).toEqual([{ type: "payment.created", traceparent: PAID }]);
  });
});
