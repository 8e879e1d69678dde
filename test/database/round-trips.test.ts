import { v7 as uuidv7 } from "uuid";
import type { Operation } from "../support/barrier.ts";
import { fundedAccount, useDatabase } from "../support/database.ts";
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
import { statementsOf } from "../support/statements.ts";

/** What each operation costs in round trips, BEGIN and COMMIT among them, counted where pg's client sends them. */
const database = useDatabase();

const MANUAL = { capture: "manual", expiresInSeconds: 3_600 } as const;
const PART = { amountMinor: "2500" };
const done = async (word: string, operation: Operation): Promise<void> =>
  await certainly(word, operation(database().app));

async function captured(scene: Scene, part = {}): Promise<string> {
  const paymentId = await scene.authorized();
  await done("recorded", capture(paymentId, part));
  return paymentId;
}

type Cost = [
  what: string,
  decided: string,
  roundTrips: number,
  scene: (scene: Scene) => Promise<Operation> | Operation,
];

const COSTS: Cost[] = [
  ["a payment accepted", "recorded", 4, ({ order }) => pay(order())],
  ["an authorization accepted", "recorded", 5, ({ order }) => pay(order(MANUAL))],
  [
    "a payment refused",
    "insufficient_funds",
    4,
    ({ order }) => pay(order({ amountMinor: "10001" })),
  ],
  [
    "a payment asked again",
    "repeated",
    4,
    async ({ order }) => {
      const input = order();
      await done("recorded", pay(input));
      return pay({ ...input, requestId: "another" });
    },
  ],
  ["a capture of a part", "recorded", 6, async (scene) => capture(await scene.authorized(), PART)],
  ["a capture of all", "recorded", 6, async (scene) => capture(await scene.authorized())],
  [
    "a capture refused",
    "capture_in_progress",
    5,
    async (scene) => capture(await captured(scene, PART)),
  ],
  [
    "a capture asked again",
    "recorded",
    4,
    async (scene) => {
      const again = capture(await scene.authorized());
      await done("recorded", again);
      return again;
    },
  ],
  ["a void", "recorded", 5, async (scene) => voiding(await scene.authorized())],
  [
    "an expiry",
    "expired",
    5,
    async (scene) => {
      const paymentId = await scene.authorized();
      await database().admin(
        "UPDATE remit.payments SET expires_at = clock_timestamp() WHERE id = $1",
        [paymentId],
      );
      return expire(paymentId);
    },
  ],
  ["a cancel", "cancelled", 4, async (scene) => cancel(await scene.pending())],
  ["a refund", "recorded", 7, async (scene) => refund(await scene.settled(), PART)],
  [
    "a refund refused",
    "refund_exceeds_captured",
    7,
    async (scene) => refund(await scene.settled(), { amountMinor: "10001" }),
  ],
  [
    "booking a payment",
    "booked",
    4,
    async (scene) => await booking(database(), await scene.pending(), "payment.created"),
  ],
  [
    "booking a payment again",
    "repeated",
    4,
    async (scene) => await booking(database(), await scene.settled(), "payment.created"),
  ],
  [
    "refusing a payment",
    "account_closed",
    5,
    async (scene) => {
      const paymentId = await scene.pending();
      await done("closed", setStatus(scene.seller, "closed"));
      return await booking(database(), paymentId, "payment.created");
    },
  ],
  [
    "booking a capture of a part",
    "booked",
    5,
    async (scene) => await booking(database(), await captured(scene, PART), "payment.captured"),
  ],
  [
    "booking the last capture",
    "booked",
    6,
    async (scene) => await booking(database(), await captured(scene), "payment.captured"),
  ],
  [
    "booking a refund",
    "booked",
    5,
    async (scene) => {
      const paymentId = await scene.settled();
      await done("recorded", refund(paymentId));
      return await booking(database(), paymentId, "refund.created");
    },
  ],
  [
    "a payment out of a world that is new",
    "recorded",
    6,
    async ({ order }) => {
      const destination = await fundedAccount(database(), `new-${uuidv7()}`, { currency: "NOK" });
      return pay(order({ source: "world:NOK", destination, currency: "NOK" }));
    },
  ],
];

test.each(COSTS)("%s (%s) takes %i round trips", async (_what, decided, roundTrips, scene) => {
  const operation = await scene(await openScene(database()));
  let word = "";
  const sent = await statementsOf(database().app, async (on) => {
    word = await operation(on);
  });
  expect({ word, count: sent.length, sent }).toEqual({ word: decided, count: roundTrips, sent });
});

test("a payment that is malformed takes none", async () => {
  const { order } = await openScene(database());
  const malformed = pay(order({ amountMinor: "0" }));
  expect(await statementsOf(database().app, malformed)).toEqual([]);
});
