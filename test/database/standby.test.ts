import { Pool } from "pg";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { createAccount } from "../../src/database/account-queries.ts";
import { createDatabase } from "../../src/database/database.ts";
import type { Database } from "../../src/database/database.ts";
import { verify } from "../../src/database/invariants.ts";
import type { VerifyReport } from "../../src/database/invariants.ts";
import { migrate } from "../../src/database/migrate.ts";
import { aPayment, createdMessage } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { startOwnPair } from "../support/own-postgres.ts";
import type { OwnPair } from "../support/own-postgres.ts";

/** `remit verify` where it costs the primary nothing: on a hot standby that streams from it. */

jest.setTimeout(120_000);
let pair: OwnPair;
let primary: Database;
let standby: Database;
let admin: Pool;

beforeAll(async () => {
  pair = await startOwnPair();
  await migrate({ adminDatabaseUrl: pair.primary.adminUrl });
  primary = createDatabase({ url: pair.primary.adminUrl, poolMax: 2, applicationName: "test" });
  standby = createDatabase({ url: pair.standby.adminUrl, poolMax: 4, applicationName: "test" });
  admin = new Pool({ connectionString: pair.primary.adminUrl, max: 1 });
});
afterAll(async () => {
  await Promise.all([primary.close(), standby.close(), admin.end()]);
  await pair.standby.stop();
  await pair.primary.stop();
});

async function look(): Promise<VerifyReport> {
  return await verify(standby, { graceSeconds: 60 });
}

test("verify on a standby finds what is right right, and names what is broken", async () => {
  await createAccount(primary, {
    accountId: "alice",
    currency: "EUR",
    kind: "customer",
    overdraftMinor: 0n,
  });
  const input = aPayment({ source: "world:EUR", destination: "alice" });
  await recordPayment(primary, input);
  await applyLedgerEntries(
    primary,
    await createdMessage(
      async (text, values) => (await admin.query(text, values)).rows,
      input.paymentId,
    ),
  );
  const known = "SELECT pg_is_in_recovery() AS recovering, status FROM remit.payments";
  await eventually(async () =>
    expect((await standby.pool.query(known)).rows).toEqual([
      { recovering: true, status: "settled" },
    ]),
  );
  expect(await look()).toMatchObject({ ok: true });
  await admin.query(
    "SET session_replication_role = replica; UPDATE remit.accounts SET posted = posted + 1 WHERE id = 'alice'",
  );
  await eventually(async () => {
    const { ok, invariants } = await look();
    expect(ok).toBe(false);
    expect(JSON.stringify(invariants.filter((each) => !each.ok))).toContain("alice");
  });
});
