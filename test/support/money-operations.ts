import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { cancelPayment } from "../../src/activities/cancel-payment.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import { expirePayment, voidPayment } from "../../src/activities/end-authorization.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { changeAccountStatus, getAccount } from "../../src/database/account-queries.ts";
import type {
  CapturePaymentInput,
  PaymentInput,
  RefundInput,
} from "../../src/workflows/messages.ts";
import type { Operation } from "./barrier.ts";
import { aPayment, anOperation, fundedAccount, newestMessage } from "./database.ts";
import type { TestDatabase } from "./database.ts";

/** What moves money, each with its input made once, so that the same request can be made again. */

export function pay(input: PaymentInput): Operation {
  return async (database) => wordFor(await recordPayment(database, input));
}

export function capture(
  paymentId: string,
  overrides: Partial<CapturePaymentInput> = {},
): Operation {
  const parameters = { amountMinor: null, currency: null, final: false, ...overrides };
  const input = anOperation(paymentId, parameters);
  return async (database) => wordFor(await capturePayment(database, input));
}

export function voiding(paymentId: string): Operation {
  const input = anOperation(paymentId, {});
  return async (database) => wordFor(await voidPayment(database, input));
}

export function refund(paymentId: string, overrides: Partial<RefundInput> = {}): Operation {
  const parameters = { amountMinor: null, currency: null, reason: null, ...overrides };
  const input = { refundId: uuidv7(), ...anOperation(paymentId, parameters) };
  return async (database) => wordFor(await recordRefund(database, input));
}

export function cancel(paymentId: string): Operation {
  return async (database) => {
    const found = await cancelPayment(database, { paymentId });
    return found?.changed === true ? found.status : "unchanged";
  };
}

export function expire(paymentId: string): Operation {
  return async (database) => (await expirePayment(database, paymentId))?.status ?? "nothing";
}

/** Books the newest message of this type about the payment. */
export async function booking(
  { admin }: TestDatabase,
  paymentId: string,
  type: "payment.created" | "payment.captured" | "refund.created",
): Promise<Operation> {
  const message = await newestMessage(admin, { paymentId, type });
  return async (database) => {
    const { repeated, error } = await applyLedgerEntries(database, message);
    return repeated ? "repeated" : (error ?? "booked");
  };
}

export function setStatus(accountId: string, status: "active" | "frozen" | "closed"): Operation {
  return async (database) => {
    const { changed } = await changeAccountStatus(database, { accountId, status });
    return changed ? status : "unchanged";
  };
}

function wordFor(result: { outcome: string; code?: string }): string {
  return result.code ?? result.outcome;
}

/** 100.00 EUR with the payer, nothing with the seller; accounts of its own. */
export interface Scene {
  readonly payer: string;
  readonly seller: string;
  /** A request from payer to seller, of all the payer has unless said. */
  readonly order: (overrides?: Partial<PaymentInput>) => PaymentInput;
  /** An authorization; answers with the payment's id. */
  readonly authorized: (overrides?: Partial<PaymentInput>) => Promise<string>;
  /** An automatic payment that is accepted. */
  readonly pending: (overrides?: Partial<PaymentInput>) => Promise<string>;
  /** One that is booked. */
  readonly settled: (overrides?: Partial<PaymentInput>) => Promise<string>;
  /** "posted/held" of both, in minor units. */
  readonly money: () => Promise<[payer: string, seller: string]>;
}

export async function openScene(database: TestDatabase): Promise<Scene> {
  const payer = await fundedAccount(database, `payer-${uuidv7()}`, { amountMinor: 10_000n });
  const seller = await fundedAccount(database, `seller-${uuidv7()}`, { kind: "merchant" });
  const order: Scene["order"] = (overrides = {}) =>
    aPayment({ source: payer, destination: seller, amountMinor: "10000", ...overrides });
  const accepted: Scene["pending"] = async (overrides = {}) => {
    const input = order(overrides);
    await certainly("recorded", pay(input)(database.app));
    return input.paymentId;
  };
  return {
    payer,
    seller,
    order,
    pending: accepted,
    authorized: async (overrides = {}) =>
      await accepted({ capture: "manual", expiresInSeconds: 3_600, ...overrides }),
    settled: async (overrides = {}) => {
      const paymentId = await accepted(overrides);
      const book = await booking(database, paymentId, "payment.created");
      await certainly("booked", book(database.app));
      return paymentId;
    },
    money: async () => [await moneyOf(database, payer), await moneyOf(database, seller)],
  };
}

/** For what a scene needs to have happened. */
export async function certainly(word: string, operation: Promise<string>): Promise<void> {
  const decided = await operation;
  if (decided !== word) throw new Error(`expected ${word}, found ${decided}`);
}

async function moneyOf({ app }: TestDatabase, accountId: string): Promise<string> {
  const account = await getAccount(app, accountId);
  return `${account?.postedMinor}/${account?.heldMinor}`;
}
