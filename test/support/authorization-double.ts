import type { PaymentActivities } from "../../src/activities/payment-activities.ts";
import type { PaymentStatus } from "../../src/domain/payment.ts";
import type { ErrorCode } from "../../src/domain/errors.ts";
import type { PaymentInput, PaymentReceipt } from "../../src/workflows/messages.ts";
import { MoneyModel } from "../model/money-model.ts";
import type { ModelPayment } from "../model/money-model.ts";

/** One authorization in memory, decided by the model, with a clock that the test moves: PostgreSQL's can't be. */
export interface AuthorizationDouble {
  readonly activities: PaymentActivities;
  /** What was called, and when by the server's clock. */
  readonly calls: readonly { name: string; atMs: number }[];
  readonly payment: () => ModelPayment;
  readonly held: () => bigint;
  /** The ledger books what is on its way. */
  readonly book: () => void;
}

export function createAuthorizationDouble({
  now,
  clockBehindMs = 0,
}: {
  now: () => Promise<number>;
  /** How far PostgreSQL's clock is behind Temporal's. */
  clockBehindMs?: number;
}): AuthorizationDouble {
  const model = new MoneyModel();
  model.open("payer", 10_000n);
  model.open("seller", 0n);
  const calls: { name: string; atMs: number }[] = [];
  let recorded: { input: PaymentInput; payment: ModelPayment; receipt: PaymentReceipt } | undefined;
  const standing = (): NonNullable<typeof recorded> => {
    if (recorded === undefined) throw new Error("nothing is recorded");
    return recorded;
  };
  /** Notes the call and answers with the time; by then the authorization may be over. */
  const called = async (name: string): Promise<number> => {
    const atMs = await now();
    calls.push({ name, atMs });
    const { receipt, payment } = recorded ?? {};
    if (payment !== undefined && receipt?.expiresAt !== undefined) {
      payment.isExpired = Date.parse(receipt.expiresAt) <= atMs - clockBehindMs;
    }
    return atMs;
  };
  const stands = () => ({ status: standing().payment.status as PaymentStatus, failureCode: null });
  const refusedWith = (code: string, requestId: string) =>
    ({ outcome: "refused", code: code as ErrorCode, message: code, requestId }) as const;
  const activities: PaymentActivities = {
    async recordPayment(input) {
      const atMs = await called("recordPayment");
      const amount = BigInt(input.amountMinor);
      const payment = model.pay({ source: "payer", destination: "seller", amount, isManual: true });
      if (typeof payment === "string") return refusedWith(payment, input.requestId);
      const receipt = {
        paymentId: input.paymentId,
        requestId: input.requestId,
        status: "authorized" as const,
        createdAt: new Date(atMs).toISOString(),
        expiresAt: new Date(atMs + (input.expiresInSeconds ?? 0) * 1_000).toISOString(),
      };
      recorded = { input, payment, receipt };
      return { outcome: "recorded", receipt };
    },
    async readPayment() {
      await called("readPayment");
      return stands();
    },
    async readCapture() {
      await called("readCapture");
      return standing().payment.captures.at(-1)?.status ?? null;
    },
    async capturePayment({ paymentId, requestId, amountMinor, final }) {
      await called("capturePayment");
      const { payment } = standing();
      const asked = amountMinor === null ? null : BigInt(amountMinor);
      const refusal = model.capture(payment, asked, final);
      if (refusal !== null) return refusedWith(refusal, requestId);
      const receipt = {
        captureId: `capture-${payment.captures.length}`,
        paymentId,
        requestId,
        amountMinor: (payment.captures.at(-1)?.amount ?? 0n).toString(),
        final: payment.status === "captured",
        status: "pending" as const,
      };
      return { outcome: "recorded", receipt };
    },
    async voidPayment({ paymentId, requestId }) {
      await called("voidPayment");
      const refusal = model.void(standing().payment);
      if (refusal !== null) return refusedWith(refusal, requestId);
      return { outcome: "recorded", receipt: { paymentId, requestId, status: stands().status } };
    },
    async cancelPayment() {
      await called("cancelPayment");
      const changed = model.cancel(standing().payment);
      return { ...stands(), changed };
    },
    async expirePayment() {
      await called("expirePayment");
      model.expire(standing().payment);
      return stands();
    },
    async takeUpPayment() {
      await called("takeUpPayment");
      const { input, receipt } = standing();
      return { recorded: input, receipt };
    },
    readRefund: async () => await unexpected("readRefund"),
    recordRefund: async () => await unexpected("recordRefund"),
  };
  return {
    activities,
    calls,
    payment: () => standing().payment,
    held: () => model.accounts.get("payer")?.held ?? 0n,
    book: () => {
      for (const message of model.messages) model.deliver(message);
    },
  };
}

async function unexpected(name: string): Promise<never> {
  throw new Error(`${name} isn't called by these tests`);
}
