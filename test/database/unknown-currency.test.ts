import { createAccount } from "../../src/database/account-queries.ts";
import { paymentRows } from "../support/attacks.ts";
import { attempt } from "../support/attempt.ts";
import { useDatabase } from "../support/database.ts";
import { runRemit } from "../support/remit-command.ts";

jest.setTimeout(30_000);
const database = useDatabase();
let paymentId: string;

/** Written by other hands, or withdrawn since: a currency that our table doesn't have. */
beforeAll(async () => {
  const zzz = { currency: "ZZZ", kind: "customer" } as const;
  await createAccount(database().app, { ...zzz, accountId: "old", overdraftMinor: 1_250n });
  await createAccount(database().app, { ...zzz, accountId: "older", overdraftMinor: 0n });
  const rows = paymentRows({
    key: "zzz",
    from: "old",
    to: "older",
    amount: 1_250,
    currency: "ZZZ",
  });
  const stoppedBy = await attempt(database(), ...rows);
  if (stoppedBy !== "nothing") throw new Error(`refused by ${stoppedBy}`);
  const [row] = await database().admin<{ id: string }>("SELECT id FROM remit.payments");
  paymentId = row?.id ?? "";
});

test.each([
  ["account list", () => []],
  ["account get", () => ["old"]],
  ["payment list", () => []],
  ["payment get", () => [paymentId]],
  ["payment explain", () => [paymentId]],
])("%s shows what is there in a currency that isn't known", async (command, args) => {
  const env = { DATABASE_URL: database().url };
  const words = [...command.split(" "), ...args()];
  const [text, json] = await Promise.all([
    runRemit({ env }, words),
    runRemit({ env }, [...words, "--json"]),
  ]);
  expect(text).toMatchObject({ exit: 0, err: "" });
  expect(text.out).toContain("1250 minor units");
  expect(json.exit).toBe(0);
  expect(json.out).toMatch(/1250 minor units|"1250"/);
});
