import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { cancelPayment } from "../../src/activities/cancel-payment.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import { expirePayment, voidPayment } from "../../src/activities/end-authorization.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { changeAccountStatus } from "../../src/database/account-queries.ts";
import { getCapture, getRefund } from "../../src/database/part-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import type {
  CapturePaymentInput,
  PaymentInput,
  RefundInput,
} from "../../src/workflows/messages.ts";
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

const database = useDatabase();
let [payer, seller] = ["", ""];

/** Each test has accounts of its own: 100.00 EUR with the payer, nothing with the seller. */
beforeEach(async () => {
  [payer, seller] = await aPair(database());
});
afterEach(async () => {
  await expectInvariants(database(), 0);
});

async function authorized(overrides: Partial<PaymentInput> = {}): Promise<string> {
  const input = aPayment({
    source: payer,
    destination: seller,
    amountMinor: "10000",
    capture: "manual",
    expiresInSeconds: 3_600,
    ...overrides,
  });
  expect(await recordPayment(database().app, input)).toMatchObject({
    outcome: "recorded",
    receipt: { status: "authorized" },
  });
  return input.paymentId;
}

async function settled(amountMinor = "10000"): Promise<string> {
  const input = aPayment({ source: payer, destination: seller, amountMinor });
  await recordPayment(database().app, input);
  await applyLedgerEntries(database().app, await createdMessage(database().admin, input.paymentId));
  return input.paymentId;
}

function aCapture(
  paymentId: string,
  overrides: Partial<CapturePaymentInput> = {},
): CapturePaymentInput {
  return anOperation(paymentId, { amountMinor: null, currency: null, final: false, ...overrides });
}

function aRefund(paymentId: string, overrides: Partial<RefundInput> = {}): RefundInput {
  const parameters = { amountMinor: null, currency: null, reason: null, ...overrides };
  return { refundId: uuidv7(), ...anOperation(paymentId, parameters) };
}

const aVoid = (paymentId: string) => anOperation(paymentId, {});

async function book(paymentId: string, type = "payment.captured") {
  return await applyLedgerEntries(
    database().app,
    await newestMessage(database().admin, { paymentId, type }),
  );
}

async function money(accountId: string): Promise<{ posted: bigint; held: bigint }> {
  return await moneyOf(database(), accountId);
}

async function standing(paymentId: string) {
  const payment = await getPayment(database().app, paymentId);
  return [payment?.status, payment?.capturedMinor, payment?.refundedMinor];
}

async function events(id: string): Promise<string[]> {
  const rows = await database().admin<{ type: string }>(
    "SELECT type FROM remit.outbox WHERE aggregate_id = $1 ORDER BY aggregate_version",
    [id],
  );
  return rows.map(({ type }) => type);
}

describe("an authorization", () => {
  test("holds its amount, captures nothing, and has an end", async () => {
    const paymentId = await authorized();
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 10_000n });
    expect(await standing(paymentId)).toEqual(["authorized", 0n, 0n]);
    expect((await getPayment(database().app, paymentId))?.expiresAt).not.toBeNull();
    expect(await events(paymentId)).toEqual(["payment.created", "payment.authorized"]);
  });

  test("captured as a whole is settled when the ledger has booked it", async () => {
    const paymentId = await authorized();
    const result = await capturePayment(database().app, aCapture(paymentId));
    expect(result).toMatchObject({
      outcome: "recorded",
      receipt: { amountMinor: "10000", final: true, status: "pending" },
    });
    expect(await standing(paymentId)).toEqual(["captured", 10_000n, 0n]);
    expect(await book(paymentId)).toMatchObject({
      outcome: "booked",
      payment: { status: "settled" },
    });
    expect([await money(payer), await money(seller)]).toEqual([
      { posted: 0n, held: 0n },
      { posted: 10_000n, held: 0n },
    ]);
    expect(await standing(paymentId)).toEqual(["settled", 10_000n, 0n]);
    expect(await events(paymentId)).toEqual([
      "payment.created",
      "payment.authorized",
      "payment.captured",
      "payment.settled",
    ]);
  });

  test("gives the remainder back at once where a capture is final (M-B5)", async () => {
    const paymentId = await authorized();
    await capturePayment(database().app, aCapture(paymentId, { amountMinor: "4000", final: true }));
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 4_000n });
    await book(paymentId);
    expect(await money(payer)).toEqual({ posted: 6_000n, held: 0n });
    expect(await standing(paymentId)).toEqual(["settled", 4_000n, 0n]);
  });

  test("is captured part by part, and the last part settles it", async () => {
    const paymentId = await authorized();
    for (const amountMinor of ["2500", "2500", "5000"]) {
      const result = await capturePayment(database().app, aCapture(paymentId, { amountMinor }));
      expect(result.outcome).toBe("recorded");
      await book(paymentId);
    }
    expect(await standing(paymentId)).toEqual(["settled", 10_000n, 0n]);
    expect(await money(seller)).toEqual({ posted: 10_000n, held: 0n });
  });

  test("of which a part was captured and booked is settled by a void, the rest released", async () => {
    const paymentId = await authorized();
    await capturePayment(database().app, aCapture(paymentId, { amountMinor: "2500" }));
    await book(paymentId);
    const result = await voidPayment(database().app, aVoid(paymentId));
    expect(result).toMatchObject({ outcome: "recorded", receipt: { status: "settled" } });
    expect(await money(payer)).toEqual({ posted: 7_500n, held: 0n });
    expect((await events(paymentId)).slice(-2)).toEqual(["payment.released", "payment.settled"]);
  });

  test("voided while a capture is on its way waits for that one", async () => {
    const paymentId = await authorized();
    await capturePayment(database().app, aCapture(paymentId, { amountMinor: "2500" }));
    await voidPayment(database().app, aVoid(paymentId));
    expect(await standing(paymentId)).toEqual(["captured", 2_500n, 0n]);
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 2_500n });
    await book(paymentId);
    expect(await standing(paymentId)).toEqual(["settled", 2_500n, 0n]);
  });

  test("voided gives all back; a capture after it, and another void, are refused (M-B7)", async () => {
    const paymentId = await authorized();
    const first = aVoid(paymentId);
    await voidPayment(database().app, first);
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 0n });
    expect(await standing(paymentId)).toEqual(["voided", 0n, 0n]);
    expect(await capturePayment(database().app, aCapture(paymentId))).toMatchObject({
      outcome: "refused",
      code: "payment_not_capturable",
    });
    expect(await voidPayment(database().app, aVoid(paymentId))).toMatchObject({
      code: "payment_not_voidable",
    });
    expect(await voidPayment(database().app, { ...first, requestId: "another" })).toMatchObject({
      outcome: "repeated",
      receipt: { paymentId },
    });
  });

  test("cancelled by an operator is voided", async () => {
    const paymentId = await authorized();
    expect(await cancelPayment(database().app, { paymentId })).toMatchObject({
      status: "voided",
      changed: true,
    });
    expect(await cancelPayment(database().app, { paymentId })).toMatchObject({
      status: "voided",
      changed: false,
    });
  });

  test("expires when its time is over and not before, and is not captured after it (M-B14)", async () => {
    const paymentId = await authorized({ expiresInSeconds: 1 });
    expect(await expirePayment(database().app, paymentId)).toMatchObject({ status: "authorized" });
    await database().admin(
      "UPDATE remit.payments SET expires_at = clock_timestamp() WHERE id = $1",
      [paymentId],
    );
    expect(await capturePayment(database().app, aCapture(paymentId))).toMatchObject({
      code: "payment_not_capturable",
    });
    expect(await expirePayment(database().app, paymentId)).toMatchObject({ status: "expired" });
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 0n });
    expect(await expirePayment(database().app, paymentId)).toMatchObject({ status: "expired" });
    expect((await events(paymentId)).at(-1)).toBe("payment.expired");
  });

  test("whose capture the ledger refuses has it back and can still be voided", async () => {
    const paymentId = await authorized();
    const capture = aCapture(paymentId, { amountMinor: "4000" });
    await capturePayment(database().app, capture);
    await changeAccountStatus(database().app, { accountId: seller, status: "closed" });
    expect(await book(paymentId)).toMatchObject({
      outcome: "refused",
      error: "account_closed",
      payment: { status: "authorized" },
    });
    expect(await standing(paymentId)).toEqual(["authorized", 0n, 0n]);
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 10_000n });
    await voidPayment(database().app, aVoid(paymentId));
    expect(await standing(paymentId)).toEqual(["voided", 0n, 0n]);
  });

  test("whose only, final capture the ledger refuses has failed", async () => {
    const paymentId = await authorized();
    const result = await capturePayment(database().app, aCapture(paymentId));
    await changeAccountStatus(database().app, { accountId: seller, status: "closed" });
    await book(paymentId);
    expect(await standing(paymentId)).toEqual(["failed", 0n, 0n]);
    expect(await money(payer)).toEqual({ posted: 10_000n, held: 0n });
    expect((await events(paymentId)).slice(-2)).toEqual([
      "payment.capture_failed",
      "payment.failed",
    ]);
    const captureId = "receipt" in result ? result.receipt.captureId : "";
    expect(await getCapture(database().app, captureId)).toMatchObject({
      status: "failed",
      failureCode: "account_closed",
    });
  });
});

describe("an operation", () => {
  test("under the fingerprint of another one is refused and leaves its key free", async () => {
    const booked = await settled("1000");
    const paymentId = await authorized({ amountMinor: "9000" });
    const asked = aCapture(paymentId, { amountMinor: "4000" });
    const malformed = { outcome: "malformed", code: "usage" };
    const trap = { ...asked, amountMinor: "1" };
    expect(await capturePayment(database().app, trap)).toMatchObject(malformed);
    expect(await voidPayment(database().app, asked)).toMatchObject(malformed);
    const back = { ...aRefund(booked), fingerprint: asked.fingerprint };
    expect(await recordRefund(database().app, back)).toMatchObject(malformed);
    expect(await capturePayment(database().app, asked)).toMatchObject({ outcome: "recorded" });
    await book(paymentId);
  });
});

describe("a capture", () => {
  test("under one key is one, also by twenty callers at once; the same key for more is a contradiction (M-A18)", async () => {
    const paymentId = await authorized();
    const capture = aCapture(paymentId, { amountMinor: "4000" });
    const results = await Promise.all(
      Array.from(
        { length: 20 },
        async (_, index) =>
          await capturePayment(database().app, { ...capture, requestId: `caller-${index}` }),
      ),
    );
    const outcomes = results.map(({ outcome }) => outcome).toSorted();
    expect(outcomes).toEqual(["recorded", ...Array.from({ length: 19 }, () => "repeated")]);
    expect(await standing(paymentId)).toEqual(["authorized", 4_000n, 0n]);
    expect(
      await capturePayment(
        database().app,
        aCapture(paymentId, { amountMinor: "5000", idempotencyKey: capture.idempotencyKey }),
      ),
    ).toMatchObject({
      outcome: "contradictory",
      code: "idempotency_key_reused",
      recorded: { operation: "capture", amountMinor: "4000" },
    });
  });

  test("is refused beyond what is left, beside an open one, in another currency, of an automatic payment, with malformed input", async () => {
    const paymentId = await authorized();
    const refusalOf = async (overrides: Partial<CapturePaymentInput>, id = paymentId) => {
      const result = await capturePayment(database().app, aCapture(id, overrides));
      return "code" in result ? result.code : result.outcome;
    };
    expect(await refusalOf({ amountMinor: "10001" })).toBe("capture_exceeds_authorized");
    expect(await refusalOf({ currency: "USD" })).toBe("currency_mismatch");
    expect(await refusalOf({ amountMinor: "0" })).toBe("amount_invalid");
    expect(await refusalOf({}, uuidv7())).toBe("payment_not_found");
    expect(await refusalOf({ amountMinor: "1" })).toBe("recorded");
    expect(await refusalOf({ amountMinor: "1" })).toBe("capture_in_progress");
    await voidPayment(database().app, aVoid(paymentId));
    const automatic = await settled("1");
    expect(await refusalOf({}, automatic)).toBe("payment_not_capturable");
  });

  test("races with void and cancel and is decided once", async () => {
    for (let round = 0; round < 10; round += 1) {
      const paymentId = await authorized({ amountMinor: "100" });
      const [capture, voiding, cancelled] = await Promise.all([
        capturePayment(database().app, aCapture(paymentId)),
        voidPayment(database().app, aVoid(paymentId)),
        cancelPayment(database().app, { paymentId }),
      ]);
      const wins = [
        capture.outcome === "recorded",
        voiding.outcome === "recorded",
        cancelled?.changed === true,
      ].filter(Boolean);
      expect(wins).toHaveLength(1);
      if (capture.outcome === "recorded") await book(paymentId);
    }
  });
});

describe("a refund", () => {
  test("of nothing said gives all back: held at once, booked later, the payment stays settled", async () => {
    const paymentId = await settled();
    const refund = aRefund(paymentId);
    const result = await recordRefund(database().app, refund);
    expect(result).toMatchObject({
      outcome: "recorded",
      receipt: { amountMinor: "10000", status: "pending" },
    });
    expect(await money(seller)).toEqual({ posted: 10_000n, held: 10_000n });
    expect(await book(paymentId, "refund.created")).toMatchObject({
      outcome: "booked",
      refund: { status: "settled" },
    });
    expect([await money(payer), await money(seller)]).toEqual([
      { posted: 10_000n, held: 0n },
      { posted: 0n, held: 0n },
    ]);
    expect(await standing(paymentId)).toEqual(["settled", 10_000n, 10_000n]);
    expect(await events(refund.refundId)).toEqual(["refund.created", "refund.settled"]);
  });

  test("can't be done twice under other keys (M-A1), nor two of 60 in parallel of 100 (M-B1)", async () => {
    const paymentId = await settled();
    const results = await Promise.all(
      [1, 2].map(
        async () => await recordRefund(database().app, aRefund(paymentId, { amountMinor: "6000" })),
      ),
    );
    expect(results.map(({ outcome }) => outcome).toSorted()).toEqual(["recorded", "refused"]);
    await book(paymentId, "refund.created");
    expect(await standing(paymentId)).toEqual(["settled", 10_000n, 6_000n]);
    const rest = await recordRefund(database().app, aRefund(paymentId));
    expect(rest).toMatchObject({ receipt: { amountMinor: "4000" } });
    await book(paymentId, "refund.created");
    expect(await recordRefund(database().app, aRefund(paymentId))).toMatchObject({
      code: "payment_not_refundable",
    });
  });

  test("is measured by what was captured and booked, not by what was authorized (M-B2)", async () => {
    const paymentId = await authorized();
    expect(await recordRefund(database().app, aRefund(paymentId))).toMatchObject({
      code: "payment_not_refundable",
    });
    await capturePayment(database().app, aCapture(paymentId, { amountMinor: "4000", final: true }));
    await book(paymentId);
    expect(
      await recordRefund(database().app, aRefund(paymentId, { amountMinor: "6000" })),
    ).toMatchObject({ code: "refund_exceeds_captured" });
    expect(
      await recordRefund(database().app, aRefund(paymentId, { amountMinor: "4000" })),
    ).toMatchObject({ outcome: "recorded" });
    await book(paymentId, "refund.created");
  });

  test("is refused where the destination has spent the money or is frozen, in another currency, for another merchant", async () => {
    const paymentId = await settled();
    const spend = aPayment({ source: seller, destination: payer, amountMinor: "9999" });
    await recordPayment(database().app, spend);
    const refusalOf = async (overrides: Partial<RefundInput>) => {
      const result = await recordRefund(database().app, aRefund(paymentId, overrides));
      return "code" in result ? result.code : result.outcome;
    };
    expect(await refusalOf({})).toBe("insufficient_funds");
    expect(await refusalOf({ currency: "USD" })).toBe("currency_mismatch");
    expect(await refusalOf({ merchant: "other" })).toBe("payment_not_found");
    expect(await refusalOf({ reason: "\u0000" })).toBe("text_invalid");
    await changeAccountStatus(database().app, { accountId: seller, status: "frozen" });
    expect(await refusalOf({ amountMinor: "1" })).toBe("account_frozen");
    await cancelPayment(database().app, { paymentId: spend.paymentId });
  });

  test("that the ledger refuses gives its hold back, and the payment can be refunded again", async () => {
    const paymentId = await settled();
    const refund = aRefund(paymentId);
    await recordRefund(database().app, refund);
    await changeAccountStatus(database().app, { accountId: payer, status: "closed" });
    expect(await book(paymentId, "refund.created")).toMatchObject({
      outcome: "refused",
      refund: { status: "failed", failureCode: "account_closed" },
    });
    expect(await money(seller)).toEqual({ posted: 10_000n, held: 0n });
    expect(await standing(paymentId)).toEqual(["settled", 10_000n, 0n]);
    expect(await getRefund(database().app, refund.refundId)).toMatchObject({ status: "failed" });
    expect(await events(refund.refundId)).toEqual(["refund.created", "refund.failed"]);
  });

  test("delivered twice is booked once; its key used for a payment is a contradiction", async () => {
    const paymentId = await settled();
    const refund = aRefund(paymentId, { amountMinor: "100" });
    await recordRefund(database().app, refund);
    await book(paymentId, "refund.created");
    expect(await book(paymentId, "refund.created")).toMatchObject({
      repeated: true,
      refund: { status: "settled" },
    });
    expect(await money(payer)).toEqual({ posted: 100n, held: 0n });
    const reused = aPayment({
      idempotencyKey: refund.idempotencyKey,
      source: payer,
      destination: seller,
    });
    expect(await recordPayment(database().app, reused)).toMatchObject({
      outcome: "contradictory",
      recorded: { operation: "refund", amountMinor: "100" },
    });
  });
});

describe("an account", () => {
  test("closes only when empty, and stays closed", async () => {
    const close = { accountId: payer, status: "closed" } as const;
    await expect(changeAccountStatus(database().app, close)).rejects.toMatchObject({
      code: "account_not_empty",
    });
    await settled();
    expect(await changeAccountStatus(database().app, close)).toMatchObject({ changed: true });
    expect(await changeAccountStatus(database().app, close)).toMatchObject({ changed: false });
    await expect(
      changeAccountStatus(database().app, { accountId: payer, status: "active" }),
    ).rejects.toMatchObject({ code: "account_closed" });
  });

  test("frozen accepts nothing new, and what was accepted still books", async () => {
    const input = aPayment({ source: payer, destination: seller, amountMinor: "100" });
    await recordPayment(database().app, input);
    await changeAccountStatus(database().app, { accountId: payer, status: "frozen" });
    expect(
      await recordPayment(database().app, aPayment({ source: payer, destination: seller })),
    ).toMatchObject({ outcome: "refused", code: "account_frozen" });
    const message = await createdMessage(database().admin, input.paymentId);
    expect(await applyLedgerEntries(database().app, message)).toMatchObject({ outcome: "booked" });
    await changeAccountStatus(database().app, { accountId: payer, status: "active" });
  });
});
