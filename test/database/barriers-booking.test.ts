import type { Operation } from "../support/barrier.ts";
import { bothWays, judge, oneAfterTheOther, outcome, playContest } from "../support/contest.ts";
import type { Contest } from "../support/contest.ts";
import { expectInvariants, useDatabase } from "../support/database.ts";
import {
  booking,
  cancel,
  capture,
  certainly,
  refund,
  setStatus,
  voiding,
} from "../support/money-operations.ts";
import type { Scene } from "../support/money-operations.ts";

/**
 * The ledger's booking and a rival at once, one of them stopped right after each of its statements in turn. Whatever the point, what comes
 * out is what comes out of one after the other, and nobody meets a deadlock. Which statements there are is read off a run.
 */
const database = useDatabase({ poolMax: 4 });

afterEach(async () => {
  await expectInvariants(database(), 0);
});

const PART = { amountMinor: "2500" };
const booked = async (
  paymentId: string,
  type: "payment.created" | "payment.captured" | "refund.created",
): Promise<Operation> => await booking(database(), paymentId, type);
const done = async (word: string, operation: Operation): Promise<void> =>
  await certainly(word, operation(database().app));

/** An authorization with a capture on its way. */
async function capturing(scene: Scene, part = {}): Promise<string> {
  const paymentId = await scene.authorized();
  await done("recorded", capture(paymentId, part));
  return paymentId;
}

/** A booked payment with a refund on its way. */
async function refunding(scene: Scene, part = {}): Promise<string> {
  const paymentId = await scene.settled();
  await done("recorded", refund(paymentId, part));
  return paymentId;
}

const CONTESTS: Record<string, Contest> = {
  "booking and booking of one payment": {
    isOneWay: true,
    between: async ({ pending }) => {
      const message = await booked(await pending(), "payment.created");
      return [message, message];
    },
    first: outcome("booked", "repeated", "0/0", "10000/0"),
    second: outcome("repeated", "booked", "0/0", "10000/0"),
  },
  "booking and booking of one capture": {
    isOneWay: true,
    between: async (scene) => {
      const message = await booked(await capturing(scene, PART), "payment.captured");
      return [message, message];
    },
    first: outcome("booked", "repeated", "7500/7500", "2500/0"),
    second: outcome("repeated", "booked", "7500/7500", "2500/0"),
  },
  "booking and booking of one refund": {
    isOneWay: true,
    between: async (scene) => {
      const message = await booked(await refunding(scene, PART), "refund.created");
      return [message, message];
    },
    first: outcome("booked", "repeated", "2500/0", "7500/0"),
    second: outcome("repeated", "booked", "2500/0", "7500/0"),
  },
  "booking and cancel": {
    between: async ({ pending }) => {
      const paymentId = await pending();
      return [await booked(paymentId, "payment.created"), cancel(paymentId)];
    },
    first: outcome("booked", "unchanged", "0/0", "10000/0"),
    second: outcome("payment_is_cancelled", "cancelled", "10000/0", "0/0"),
  },
  "booking of a part and void of the rest": {
    between: async (scene) => {
      const paymentId = await capturing(scene, PART);
      return [await booked(paymentId, "payment.captured"), voiding(paymentId)];
    },
    first: outcome("booked", "recorded", "7500/0", "2500/0"),
    second: outcome("booked", "recorded", "7500/0", "2500/0"),
  },
  "booking of a payment and its refund": {
    between: async ({ pending }) => {
      const paymentId = await pending();
      return [await booked(paymentId, "payment.created"), refund(paymentId)];
    },
    first: outcome("booked", "recorded", "0/0", "10000/10000"),
    second: outcome("booked", "payment_not_refundable", "0/0", "10000/0"),
  },
  "booking of a refund and a refund of the rest": {
    between: async (scene) => {
      const paymentId = await refunding(scene, PART);
      return [await booked(paymentId, "refund.created"), refund(paymentId)];
    },
    first: outcome("booked", "recorded", "2500/0", "7500/7500"),
    second: outcome("booked", "recorded", "2500/0", "7500/7500"),
  },
  "booking of a payment and close": {
    between: async ({ seller, pending }) => [
      await booked(await pending(), "payment.created"),
      setStatus(seller, "closed"),
    ],
    first: outcome("booked", "account_not_empty", "0/0", "10000/0"),
    second: outcome("account_closed", "closed", "10000/0", "0/0"),
  },
  "booking of a capture and close": {
    between: async (scene) => [
      await booked(await capturing(scene, PART), "payment.captured"),
      setStatus(scene.seller, "closed"),
    ],
    first: outcome("booked", "account_not_empty", "7500/7500", "2500/0"),
    second: outcome("account_closed", "closed", "10000/10000", "0/0"),
  },
  "booking of a refund and close": {
    between: async (scene) => [
      await booked(await refunding(scene), "refund.created"),
      setStatus(scene.payer, "closed"),
    ],
    first: outcome("booked", "account_not_empty", "10000/0", "0/0"),
    second: outcome("account_closed", "closed", "0/0", "10000/0"),
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
