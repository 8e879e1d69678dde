import { randomUUID } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import { createAccount } from "../../src/database/account-queries.ts";
import type { Operation } from "../support/barrier.ts";
import { bothWays, judge, oneAfterTheOther, outcome, playContest } from "../support/contest.ts";
import type { Contest } from "../support/contest.ts";
import { expectInvariants, useDatabase } from "../support/database.ts";
import {
  cancel,
  capture,
  certainly,
  expire,
  pay,
  refund,
  setStatus,
  voiding,
} from "../support/money-operations.ts";

/**
 * Two operations at once, one of them stopped right after each of its statements in turn. Whatever the point, what comes
 * out is what comes out of one after the other, and nobody meets a deadlock. Which statements there are is read off a run.
 */
const database = useDatabase({ poolMax: 4 });

afterEach(async () => {
  await expectInvariants(database(), 0);
});

const PART = { amountMinor: "2500" };
const done = async (word: string, operation: Operation): Promise<void> =>
  await certainly(word, operation(database().app));

const LAPSE_UNLESS_LOCKED = `
  UPDATE remit.payments
     SET expires_at = clock_timestamp()
   WHERE id = (SELECT id FROM remit.payments WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED)`;

/** Its time ends now, unless somebody is deciding about it. */
async function lapse(paymentId: string): Promise<void> {
  await database().admin(LAPSE_UNLESS_LOCKED, [paymentId]);
}

const CONTESTS: Record<string, Contest> = {
  "pay and pay, one key": {
    isOneWay: true,
    between: async ({ order }) => {
      const input = order(PART);
      const again = { ...input, paymentId: uuidv7(), requestId: randomUUID() };
      return [pay(input), pay(again)];
    },
    first: outcome("recorded", "repeated", "10000/2500", "0/0"),
    second: outcome("repeated", "recorded", "10000/2500", "0/0"),
  },
  "pay and pay, funds for one": {
    isOneWay: true,
    between: async ({ order }) => [pay(order()), pay(order())],
    first: outcome("recorded", "insufficient_funds", "10000/10000", "0/0"),
    second: outcome("insufficient_funds", "recorded", "10000/10000", "0/0"),
  },
  "authorize and pay, funds for one": {
    between: async ({ order }) => [
      pay(order({ capture: "manual", expiresInSeconds: 3_600 })),
      pay(order()),
    ],
    first: outcome("recorded", "insufficient_funds", "10000/10000", "0/0"),
    second: outcome("insufficient_funds", "recorded", "10000/10000", "0/0"),
  },
  "capture and capture, one key": {
    isOneWay: true,
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      const request = { ...PART, idempotencyKey: `k-${paymentId}` };
      return [
        capture(paymentId, { ...request, requestId: "one" }),
        capture(paymentId, { ...request, requestId: "other" }),
      ];
    },
    first: outcome("recorded", "repeated", "10000/10000", "0/0"),
    second: outcome("repeated", "recorded", "10000/10000", "0/0"),
  },
  "refund and refund, one key": {
    isOneWay: true,
    between: async ({ settled }) => {
      const paymentId = await settled();
      const request = { ...PART, idempotencyKey: `k-${paymentId}` };
      return [
        refund(paymentId, { ...request, requestId: "one" }),
        refund(paymentId, { ...request, requestId: "other" }),
      ];
    },
    first: outcome("recorded", "repeated", "0/0", "10000/2500"),
    second: outcome("repeated", "recorded", "0/0", "10000/2500"),
  },
  "capture and capture": {
    isOneWay: true,
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      return [capture(paymentId, PART), capture(paymentId, PART)];
    },
    first: outcome("recorded", "capture_in_progress", "10000/10000", "0/0"),
    second: outcome("capture_in_progress", "recorded", "10000/10000", "0/0"),
  },
  "capture and void": {
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      return [capture(paymentId), voiding(paymentId)];
    },
    first: outcome("recorded", "payment_not_voidable", "10000/10000", "0/0"),
    second: outcome("payment_not_capturable", "recorded", "10000/0", "0/0"),
  },
  "capture and cancel": {
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      return [capture(paymentId), cancel(paymentId)];
    },
    first: outcome("recorded", "unchanged", "10000/10000", "0/0"),
    second: outcome("payment_not_capturable", "voided", "10000/0", "0/0"),
  },
  "capture and expire": {
    isOneWay: true,
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      const expiry: Operation = async (on) => {
        await lapse(paymentId);
        return await expire(paymentId)(on);
      };
      return [capture(paymentId), expiry];
    },
    first: outcome("recorded", "captured", "10000/10000", "0/0"),
    second: outcome("payment_not_capturable", "expired", "10000/0", "0/0"),
  },
  "expire and capture": {
    isOneWay: true,
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      await lapse(paymentId);
      return [expire(paymentId), capture(paymentId)];
    },
    first: outcome("expired", "payment_not_capturable", "10000/0", "0/0"),
    second: outcome("expired", "payment_not_capturable", "10000/0", "0/0"),
  },
  "void and expire": {
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      await lapse(paymentId);
      return [voiding(paymentId), expire(paymentId)];
    },
    first: outcome("recorded", "voided", "10000/0", "0/0"),
    second: outcome("payment_not_voidable", "expired", "10000/0", "0/0"),
  },
  "refund and refund over the limit": {
    isOneWay: true,
    between: async ({ settled }) => {
      const paymentId = await settled();
      const part = { amountMinor: "6000" };
      return [refund(paymentId, part), refund(paymentId, part)];
    },
    first: outcome("recorded", "refund_exceeds_captured", "0/0", "10000/6000"),
    second: outcome("refund_exceeds_captured", "recorded", "0/0", "10000/6000"),
  },
  "refunds of two payments, funds for one": {
    between: async ({ payer, seller, settled, order }) => {
      const [one, other] = [await settled({ amountMinor: "5000" }), await settled(PART)];
      await done("recorded", pay(order({ ...PART, source: seller, destination: payer })));
      return [refund(one), refund(other)];
    },
    first: outcome("recorded", "insufficient_funds", "2500/0", "7500/7500"),
    second: outcome("insufficient_funds", "recorded", "2500/0", "7500/5000"),
  },
  "pay and freeze": {
    between: async ({ payer, order }) => [pay(order()), setStatus(payer, "frozen")],
    first: outcome("recorded", "frozen", "10000/10000", "0/0"),
    second: outcome("account_frozen", "frozen", "10000/0", "0/0"),
  },
  "refund and freeze": {
    between: async ({ seller, settled }) => [refund(await settled()), setStatus(seller, "frozen")],
    first: outcome("recorded", "frozen", "0/0", "10000/10000"),
    second: outcome("account_frozen", "frozen", "0/0", "10000/0"),
  },
  "pay and close of the source": {
    between: async ({ payer, order }) => {
      const source = `overdrawn-${uuidv7()}`;
      const account = { accountId: source, currency: "EUR", overdraftMinor: 10_000n } as const;
      await createAccount(database().app, { ...account, kind: "customer" });
      return [pay(order({ source, destination: payer })), setStatus(source, "closed")];
    },
    first: outcome("recorded", "account_not_empty", "10000/0", "0/0"),
    second: outcome("account_closed", "closed", "10000/0", "0/0"),
  },
  "pay and close of the destination": {
    between: async ({ seller, order }) => [pay(order()), setStatus(seller, "closed")],
    first: outcome("recorded", "closed", "10000/10000", "0/0"),
    second: outcome("account_closed", "closed", "10000/0", "0/0"),
  },
};

const contests = bothWays(CONTESTS);

test.each(contests)(
  "%s: whatever the statement, one comes after the other",
  async (_name, contest) => {
    const played = await playContest(database(), contest);
    expect(judge(played, contest)).toEqual(oneAfterTheOther(contest));
  },
);
