import { playRound } from "../support/barrier.ts";
import type { Operation, Round } from "../support/barrier.ts";
import { expectInvariants, useDatabase } from "../support/database.ts";
import {
  booking,
  cancel,
  capture,
  certainly,
  expire,
  openScene,
  pay,
  refund,
  setStatus,
  voiding,
} from "../support/money-operations.ts";
import type { Scene } from "../support/money-operations.ts";
import { statementsOf, withFault } from "../support/statements.ts";

/** Planted faults: each lock is taken away from its statement, and the race that it decides then goes another way. */
const database = useDatabase({ poolMax: 4 });

afterEach(async () => {
  await expectInvariants(database(), 0);
});

interface Lock {
  readonly statement: string;
  readonly part: string;
}

const SOURCE: Lock = { statement: "claim_key", part: "FOR NO KEY UPDATE OF a" };
const GIVER: Lock = { statement: "lock_account", part: "FOR NO KEY UPDATE" };
const OPERATED: Lock = { statement: "claim_operation", part: "FOR NO KEY UPDATE OF p" };
const ENDED: Lock = { statement: "lock_payment", part: "FOR NO KEY UPDATE" };
const BOOKED: Lock = { statement: "receive_message", part: "FOR NO KEY UPDATE OF p" };

interface Race {
  readonly lock: Lock;
  /** The statement after which the first one stands still while the other runs. */
  readonly stopAfter: string;
  readonly between: (scene: Scene) => Promise<[stopped: Operation, rival: Operation]>;
  readonly withLock: [stopped: string, rival: string];
  readonly without: [stopped: string, rival: string];
  /** What still catches it: a constraint, or 40001, by which the outbox refuses an event out of turn; null: nothing. */
  readonly caughtBy: string | null;
}

const PART = { amountMinor: "6000" };
const done = async (word: string, operation: Operation): Promise<void> =>
  await certainly(word, operation(database().app));

const RACES: Record<string, Race> = {
  "the source, between two payments": {
    lock: SOURCE,
    stopAfter: "claim_key",
    between: async ({ order }) => [pay(order()), pay(order())],
    withLock: ["recorded", "insufficient_funds"],
    without: ["thrown: accounts_available_check", "recorded"],
    caughtBy: "accounts_available_check",
  },
  "the source, between a payment and a freeze: one is accepted after the freeze was confirmed": {
    lock: SOURCE,
    stopAfter: "claim_key",
    between: async ({ payer, order }) => [pay(order()), setStatus(payer, "frozen")],
    withLock: ["recorded", "frozen"],
    without: ["recorded", "frozen"],
    caughtBy: null,
  },
  "the giver, between refunds of two payments": {
    lock: GIVER,
    stopAfter: "lock_account",
    between: async ({ payer, seller, settled, order }) => {
      const parts = [
        await settled({ amountMinor: "5000" }),
        await settled({ amountMinor: "2500" }),
      ];
      const spent = order({ amountMinor: "2500", source: seller, destination: payer });
      await done("recorded", pay(spent));
      return [refund(parts[0] ?? ""), refund(parts[1] ?? "")];
    },
    withLock: ["recorded", "insufficient_funds"],
    without: ["thrown: accounts_available_check", "recorded"],
    caughtBy: "accounts_available_check",
  },
  "the giver, between a refund and a freeze: one is accepted after the freeze was confirmed": {
    lock: GIVER,
    stopAfter: "lock_account",
    between: async ({ seller, settled }) => [refund(await settled()), setStatus(seller, "frozen")],
    withLock: ["recorded", "frozen"],
    without: ["recorded", "frozen"],
    caughtBy: null,
  },
  "the payment, between two captures": {
    lock: OPERATED,
    stopAfter: "read_captures",
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      return [capture(paymentId, PART), capture(paymentId, PART)];
    },
    withLock: ["recorded", "capture_in_progress"],
    without: ["thrown: captures_one_open_key", "recorded"],
    caughtBy: "captures_one_open_key",
  },
  "the payment, between a capture and a void": {
    lock: OPERATED,
    stopAfter: "read_captures",
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      return [capture(paymentId), voiding(paymentId)];
    },
    withLock: ["recorded", "payment_not_voidable"],
    without: ["payment_not_capturable", "recorded"],
    caughtBy: "40001",
  },
  "the payment, between two refunds": {
    lock: OPERATED,
    stopAfter: "read_captures",
    between: async ({ settled }) => {
      const half = { amountMinor: "5000" };
      const [paymentId] = [await settled(half), await settled(half)];
      const part = { amountMinor: "3000" };
      return [refund(paymentId, part), refund(paymentId, part)];
    },
    withLock: ["recorded", "refund_exceeds_captured"],
    without: ["thrown: payments_amounts_check", "recorded"],
    caughtBy: "payments_amounts_check",
  },
  "the payment, between an expiry and a void": {
    lock: ENDED,
    stopAfter: "read_captures",
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      await database().admin(
        "UPDATE remit.payments SET expires_at = clock_timestamp() WHERE id = $1",
        [paymentId],
      );
      return [expire(paymentId), voiding(paymentId)];
    },
    withLock: ["expired", "payment_not_voidable"],
    without: ["voided", "recorded"],
    caughtBy: "40001",
  },
  "the payment, between a cancel and its booking": {
    lock: ENDED,
    stopAfter: "lock_payment",
    between: async ({ pending }) => {
      const paymentId = await pending();
      return [cancel(paymentId), await booking(database(), paymentId, "payment.created")];
    },
    withLock: ["cancelled", "payment_is_cancelled"],
    without: ["unchanged", "booked"],
    caughtBy: "40001",
  },
  "the payment, between its booking and a cancel": {
    lock: BOOKED,
    stopAfter: "receive_message",
    between: async ({ pending }) => {
      const paymentId = await pending();
      return [await booking(database(), paymentId, "payment.created"), cancel(paymentId)];
    },
    withLock: ["booked", "unchanged"],
    without: ["payment_is_cancelled", "cancelled"],
    caughtBy: "40001",
  },
  "the payment, between the booking of a part and a void": {
    lock: BOOKED,
    stopAfter: "receive_message",
    between: async ({ authorized }) => {
      const paymentId = await authorized();
      await done("recorded", capture(paymentId, PART));
      return [await booking(database(), paymentId, "payment.captured"), voiding(paymentId)];
    },
    withLock: ["booked", "recorded"],
    without: ["thrown: payments_captured_check", "recorded"],
    caughtBy: "payments_captured_check",
  },
};

async function run({ between, stopAfter, lock }: Race, isLocked: boolean): Promise<Round> {
  const [alone] = await between(await openScene(database()));
  const position = (await statementsOf(database().app, alone)).indexOf(stopAfter);
  const [stopped, rival] = await between(await openScene(database()));
  const on = isLocked ? database().app : withFault(database().app, { ...lock, by: "" });
  return await playRound(database(), { stopped, rival, position, stoppedOn: on, rivalOn: on });
}

describe("the lock of", () => {
  test.each(Object.entries(RACES))("%s", async (_name, race) => {
    const [stopped, rival] = race.withLock;
    expect(await run(race, true)).toMatchObject({
      stopped,
      rival,
      rivalWaited: true,
      failures: [],
    });
    const [unlockedStopped, unlockedRival] = race.without;
    expect(await run(race, false)).toMatchObject({
      stopped: unlockedStopped,
      rival: unlockedRival,
      rivalWaited: false,
      failures: race.caughtBy === null ? [] : [race.caughtBy],
    });
  });
});

describe("the claim of a key", () => {
  test("makes the second caller a repeat, where the bare index would make it an error", async () => {
    const race = async (faults: Parameters<typeof withFault>[1][]): Promise<Round> => {
      const { order } = await openScene(database());
      const input = order(PART);
      const on = faults.reduce(withFault, database().app);
      const [stopped, rival] = [pay(input), pay({ ...input, requestId: "another" })];
      return await playRound(database(), {
        stopped,
        rival,
        position: 1,
        stoppedOn: on,
        rivalOn: on,
      });
    };
    expect(await race([])).toMatchObject({ rivalWaited: true, rival: "repeated" });
    const part = "ON CONFLICT (merchant, key) DO NOTHING";
    expect(await race([{ statement: "claim_key", part, by: "" }])).toMatchObject({
      stopped: "recorded",
      rival: "thrown: idempotency_keys_pkey",
    });
  });
});
