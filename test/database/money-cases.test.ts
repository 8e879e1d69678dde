import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { getAccount, listAccounts, listEntries } from "../../src/database/account-queries.ts";
import { findPaymentByKey, getPayment, listPayments } from "../../src/database/payment-queries.ts";
import { tracePayment } from "../../src/database/payment-trace.ts";
import {
  aPayment,
  createdMessage,
  expectInvariants,
  fundedAccount,
  useDatabase,
} from "../support/database.ts";

/** Faults of other payment systems that no other test here plays; docs/cases.md maps the rest. */
const database = useDatabase();

beforeAll(async () => {
  await fundedAccount(database(), "shop", { kind: "merchant" });
});
afterEach(async () => {
  await expectInvariants(database());
});

test("an amount beyond 2^53 keeps its digits on every way out", async () => {
  const exact = 9_007_199_254_740_993n;
  await fundedAccount(database(), "rich", { amountMinor: exact });
  const input = aPayment({ source: "rich", amountMinor: exact.toString() });
  await recordPayment(database().app, input);
  await applyLedgerEntries(database().app, await createdMessage(database().admin, input.paymentId));
  const { app } = database();
  const key = { merchant: "default", key: input.idempotencyKey };
  const [entry] = await listEntries(app, "rich", { limit: 1 });
  const [listed] = await listPayments(app, { limit: 1 });
  const accounts = await listAccounts(app, { limit: 100 });
  const { transactions } = await tracePayment(app, input.paymentId);
  expect([
    (await getPayment(app, input.paymentId))?.amountMinor,
    (await findPaymentByKey(app, key))?.capturedMinor,
    listed?.amountMinor,
    entry?.amountMinor,
    (await getAccount(app, "shop"))?.postedMinor,
    accounts.find(({ accountId }) => accountId === "shop")?.postedMinor,
    ...(transactions[0]?.entries.map(({ amountMinor }) => amountMinor) ?? []),
  ]).toEqual(Array.from({ length: 8 }, () => exact));
});

test("thirty payments of 1 out of 1,000 at once are all accepted: a conflict is never missing funds", async () => {
  await fundedAccount(database(), "busy", { amountMinor: 1_000n });
  const results = await Promise.all(
    Array.from(
      { length: 30 },
      async () =>
        await recordPayment(database().app, aPayment({ source: "busy", amountMinor: "1" })),
    ),
  );
  expect(results.map(({ outcome }) => outcome)).toEqual(results.map(() => "recorded"));
  expect((await getAccount(database().app, "busy"))?.heldMinor).toBe(30n);
});

test("holds count against what is available: the sixth of 1,000 out of 5,000 is refused", async () => {
  await fundedAccount(database(), "holder", { amountMinor: 5_000n });
  const outcomes: string[] = [];
  for (let count = 0; count < 6; count += 1) {
    const input = aPayment({
      source: "holder",
      amountMinor: "1000",
      capture: "manual",
      expiresInSeconds: 3_600,
    });
    const result = await recordPayment(database().app, input);
    outcomes.push("code" in result ? result.code : result.outcome);
  }
  expect(outcomes).toEqual([...Array.from({ length: 5 }, () => "recorded"), "insufficient_funds"]);
});

test("metadata of an account changes while payments lock it, without a deadlock", async () => {
  await fundedAccount(database(), "edited", { amountMinor: 10_000n });
  const payments = Array.from(
    { length: 40 },
    async () =>
      await recordPayment(database().app, aPayment({ source: "edited", amountMinor: "1" })),
  );
  const edits = Array.from(
    { length: 40 },
    async (_, index) =>
      await database().app.run(
        {
          name: "edit_metadata",
          text: "UPDATE remit.accounts SET metadata = jsonb_build_object('edit', $1::int) WHERE id = 'edited'",
        },
        [index],
      ),
  );
  const results = await Promise.all([Promise.all(payments), Promise.all(edits)]);
  expect(results[0].map(({ outcome }) => outcome)).toEqual(payments.map(() => "recorded"));
});

test("a client that goes away in the middle leaves no lock behind", async () => {
  await fundedAccount(database(), "left", { amountMinor: 10_000n });
  const client = await database().app.pool.connect();
  // The pool would otherwise report the connection that is cut on purpose.
  client.on("error", () => undefined);
  await client.query("BEGIN");
  await client.query("SELECT FROM remit.accounts WHERE id = 'left' FOR NO KEY UPDATE");
  const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  const waiting = recordPayment(database().app, aPayment({ source: "left", amountMinor: "1" }));
  await database().admin("SELECT pg_terminate_backend($1)", [rows[0]?.pid]);
  client.release(true);
  expect(await waiting).toMatchObject({ outcome: "recorded" });
});

test("a key costs a few hundred bytes, for ever", async () => {
  await fundedAccount(database(), "keyed", { amountMinor: 10_000n });
  for (let count = 0; count < 200; count += 1) {
    await recordPayment(database().app, aPayment({ source: "keyed", amountMinor: "1" }));
  }
  const [row] = await database().admin<{ bytes: number }>(
    `SELECT avg(pg_column_size(k.*))::int AS bytes FROM remit.idempotency_keys k`,
  );
  expect(row?.bytes).toBeLessThan(500);
  if (process.env["REMIT_UPDATE_DOCS"] === "1") process.stderr.write(`${row?.bytes} bytes a key\n`);
});
