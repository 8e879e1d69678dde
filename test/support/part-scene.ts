import { v7 as uuidv7 } from "uuid";
import { aPayment, fundedAccount } from "./database.ts";
import type { TestDatabase } from "./database.ts";
import {
  booking,
  capture,
  certainly,
  openScene,
  pay,
  refund,
  setStatus,
  voiding,
} from "./money-operations.ts";

/** A payment, its part, and the ledger transaction of that. */
export interface Part {
  readonly payment: string;
  readonly part: string;
  readonly transaction: string;
  readonly message: string;
}

export interface Parts {
  readonly payer: string;
  readonly seller: string;
  /** An authorization of which 10.00 are booked, and two of which 10.00 are on their way, each with a rest. */
  readonly capture: Part;
  readonly openCapture: Part;
  readonly otherCapture: Part;
  /** Captured to its end, not booked yet. */
  readonly finalCapture: Part;
  readonly failedCapture: Part;
  readonly refund: Part;
  readonly openRefund: Part;
  readonly failedRefund: Part;
  readonly voided: string;
}

/** Captures and refunds in every state. */
export async function openParts(database: TestDatabase): Promise<Parts> {
  const { payer, seller, order } = await openScene(database);
  const done = async (word: string, operation: (on: TestDatabase["app"]) => Promise<string>) =>
    await certainly(word, operation(database.app));
  const paid = async (input: ReturnType<typeof order>): Promise<string> => {
    await done("recorded", pay(input));
    return input.paymentId;
  };
  const authorized = async (amountMinor: string, destination = seller): Promise<string> =>
    await paid(order({ amountMinor, destination, capture: "manual", expiresInSeconds: 3_600 }));
  const book = async (
    word: string,
    payment: string,
    type: "payment.created" | "payment.captured" | "refund.created",
  ) => await done(word, await booking(database, payment, type));

  const [half, open, other, final] = [
    await authorized("2000"),
    await authorized("2000"),
    await authorized("1500"),
    await authorized("1000"),
  ];
  const part = { amountMinor: "1000" };
  await done("recorded", capture(half, part));
  await book("booked", half, "payment.captured");
  await done("recorded", capture(open, part));
  await done("recorded", capture(other, part));
  await done("recorded", capture(final));
  const gone = await fundedAccount(database, `gone-${uuidv7()}`);
  const refused = await authorized("500", gone);
  await done("recorded", capture(refused, { amountMinor: "200" }));
  await done("closed", setStatus(gone, "closed"));
  await book("account_closed", refused, "payment.captured");
  const voided = await authorized("100");
  await done("recorded", voiding(voided));

  const [given, giving] = [
    await paid(order({ amountMinor: "1000" })),
    await paid(order({ amountMinor: "1000" })),
  ];
  const leaver = await fundedAccount(database, `leaver-${uuidv7()}`, { amountMinor: 100n });
  const left = await paid(aPayment({ source: leaver, destination: seller, amountMinor: "100" }));
  for (const payment of [given, giving, left]) {
    await book("booked", payment, "payment.created");
    await done("recorded", refund(payment, { amountMinor: "100" }));
  }
  await book("booked", given, "refund.created");
  await done("closed", setStatus(leaver, "closed"));
  await book("account_closed", left, "refund.created");
  return {
    payer,
    seller,
    capture: await partOf(database, half, "capture"),
    openCapture: await partOf(database, open, "capture"),
    otherCapture: await partOf(database, other, "capture"),
    finalCapture: await partOf(database, final, "capture"),
    failedCapture: await partOf(database, refused, "capture"),
    refund: await partOf(database, given, "refund"),
    openRefund: await partOf(database, giving, "refund"),
    failedRefund: await partOf(database, left, "refund"),
    voided,
  };
}

async function partOf(
  database: TestDatabase,
  payment: string,
  kind: "capture" | "refund",
): Promise<Part> {
  const type = kind === "capture" ? "payment.captured" : "refund.created";
  const [row] = await database.admin<Omit<Part, "payment">>(
    `SELECT part.id AS part, t.id AS transaction, o.id AS message
       FROM remit.${kind}s part
       LEFT JOIN remit.ledger_transactions t ON t.${kind}_id = part.id
       JOIN remit.outbox o ON o.type = '${type}' AND o.payload #>> '{data,${kind}Id}' = part.id::text
      WHERE part.payment_id = $1`,
    [payment],
  );
  if (row === undefined) throw new Error(`payment ${payment} has no ${kind}`);
  return { payment, ...row };
}
