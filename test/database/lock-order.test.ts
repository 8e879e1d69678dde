import { Client } from "pg";
import { waitingSessions, watchFailures } from "../support/barrier.ts";
import type { Operation } from "../support/barrier.ts";
import { expectInvariants, useDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import {
  booking,
  capture,
  certainly,
  openScene,
  pay,
  refund,
} from "../support/money-operations.ts";
import { withFault } from "../support/statements.ts";

/** Planted faults: the accounts of a booking are locked in another order than the one that all writers share. */
const database = useDatabase({ poolMax: 4 });

beforeAll(async () => {
  // The tests with a deadlock need not wait a second for PostgreSQL to look.
  await database().admin(
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 50', current_database()); END $$",
  );
});
afterEach(async () => {
  await expectInvariants(database(), 0);
});

const done = async (word: string, operation: Operation): Promise<void> =>
  await certainly(word, operation(database().app));

const BY_RANK =
  "ORDER BY CASE a.kind WHEN 'customer' THEN 0 WHEN 'merchant' THEN 1 WHEN 'fee' THEN 2 ELSE 3 END, a.id";

/** Locks an account until `end` is called, as somebody else. */
async function holdAccount(accountId: string): Promise<{ end: () => Promise<void> }> {
  const client = new Client({ connectionString: database().adminUrl });
  await client.connect();
  await client.query("BEGIN");
  await client.query("SELECT FROM remit.accounts WHERE id = $1 FOR NO KEY UPDATE", [accountId]);
  return {
    end: async () => {
      // Answered, the lock is gone; the end of a connection is noticed later.
      await client.query("ROLLBACK");
      await client.end();
    },
  };
}

async function untilBothWait(): Promise<void> {
  await eventually(async () => expect(await waitingSessions(database().admin)).toBe(2), {
    timeoutMs: 1_500,
  });
}

describe("the order of the accounts' locks", () => {
  /** Money both ways between two accounts, booked at once: both stand before their first account, then get it. */
  async function bookBothWays(
    kind: "payments" | "capture and refund",
    faults: Parameters<typeof withFault>[1][],
  ): Promise<{ words: string[]; failures: string[] }> {
    const { payer, seller, settled, pending, authorized, order } = await openScene(database());
    const part = { amountMinor: "1000" };
    const earlier = await settled({ amountMinor: "5000" });
    const bookings: Operation[] = [];
    if (kind === "payments") {
      const back = order({ ...part, source: seller, destination: payer });
      await done("recorded", pay(back));
      bookings.push(
        await booking(database(), await pending(part), "payment.created"),
        await booking(database(), back.paymentId, "payment.created"),
      );
    } else {
      const paymentId = await authorized(part);
      await done("recorded", capture(paymentId));
      await done("recorded", refund(earlier, part));
      bookings.push(
        await booking(database(), paymentId, "payment.captured"),
        await booking(database(), earlier, "refund.created"),
      );
    }
    const failures: string[] = [];
    const faulty = faults.reduce(withFault, watchFailures(database().app, failures));
    const holders = [await holdAccount(payer), await holdAccount(seller)];
    const words = Promise.all(bookings.map(async (book) => await book(faulty)));
    try {
      await untilBothWait();
      await holders[1]?.end();
      await untilBothWait();
    } finally {
      for (const { end } of holders) await end().catch(() => undefined);
    }
    return { words: await words, failures };
  }

  const debitFirst = (statement: string, by: string) => ({ statement, part: BY_RANK, by });
  test.each([
    ["payments", [debitFirst("book_payment", "ORDER BY a.id = p.source DESC")]],
    [
      "capture and refund",
      ["post_capture", "post_refund"].map((name) => debitFirst(name, "ORDER BY a.id = $5 DESC")),
    ],
  ] as const)(
    "keeps %s from a deadlock, which the debited first would be",
    async (kind, faults) => {
      const booked = ["booked", "booked"];
      expect(await bookBothWays(kind, [])).toEqual({ words: booked, failures: [] });
      // The transaction that PostgreSQL ends runs again.
      expect(await bookBothWays(kind, [...faults])).toEqual({ words: booked, failures: ["40P01"] });
    },
  );
});
