import { randomBytes } from "node:crypto";
import { Client } from "pg";
import { migrate, migrationStatus } from "../../src/database/migrate.ts";
import { createDatabase } from "../../src/database/database.ts";
import { checkDatabase } from "../../src/database/start-up-checks.ts";
import { testServices } from "../support/services.ts";
import { useDatabase } from "../support/database.ts";

const MIGRATIONS = [
  "0000_schema",
  "0001_rules",
  "0002_privileges",
  "0003_captures_and_refunds",
  "0004_outbox_operations",
  "0005_judged_at_the_end",
  "0006_reconciliation",
  "0007_own_events",
  "0008_rows_that_are_there",
  "0009_each_row_its_own",
];
const migrated = useDatabase();
let adminDatabaseUrl: string;
let name: string;

async function sql(url: string, text: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

beforeEach(async () => {
  name = `migrate_${randomBytes(6).toString("hex")}`;
  const { REMIT_TEST_ADMIN_DATABASE_URL: admin } = testServices();
  await sql(admin, `CREATE DATABASE ${name}`);
  const url = new URL(admin);
  url.pathname = `/${name}`;
  adminDatabaseUrl = url.href;
});
afterEach(async () => {
  await sql(testServices().REMIT_TEST_ADMIN_DATABASE_URL, `DROP DATABASE ${name} WITH (FORCE)`);
});

describe("migrate", () => {
  test("three migrators at once apply each migration once", async () => {
    const results = await Promise.all(
      [1, 2, 3].map(async () => await migrate({ adminDatabaseUrl })),
    );
    expect(
      results.map(({ applied }) => applied.length).toSorted((left, right) => left - right),
    ).toEqual([0, 0, MIGRATIONS.length]);
    expect(await migrationStatus({ adminDatabaseUrl })).toMatchObject({ pending: [] });
  });

  test("the status of an empty database names what is pending and changes nothing", async () => {
    const before = await migrationStatus({ adminDatabaseUrl });
    expect(before).toEqual({
      applied: [],
      pending: MIGRATIONS,
      unknown: 0,
    });
    expect(await migrationStatus({ adminDatabaseUrl })).toEqual(before);
  });

  test("a migration that was edited after it had run is refused by name", async () => {
    await migrate({ adminDatabaseUrl });
    await sql(adminDatabaseUrl, "UPDATE remit.migrations SET hash = 'other' WHERE id = 2");
    await expect(migrate({ adminDatabaseUrl })).rejects.toMatchObject({
      code: "usage",
      message: expect.stringContaining("0001_rules") as string,
    });
  });

  test("one that another session keeps from its lock says who, and waits for nobody for ever", async () => {
    const rival = new Client({ connectionString: adminDatabaseUrl });
    await rival.connect();
    const { rows } = await rival.query<{ pid: number }>(
      "SELECT pg_backend_pid() AS pid, pg_advisory_lock(7306871)",
    );
    await expect(migrate({ adminDatabaseUrl, lockMsMax: 300 })).rejects.toMatchObject({
      code: "database_unreachable",
      message: expect.stringContaining(`SELECT pg_terminate_backend(${rows[0]?.pid})`) as string,
    });
    await rival.end();
    await migrate({ adminDatabaseUrl });
  });

  test("one that meets an open transaction gives way, and goes on when that has ended", async () => {
    await migrate({ adminDatabaseUrl });
    await sql(
      adminDatabaseUrl,
      `DELETE FROM remit.migrations WHERE id = (SELECT max(id) FROM remit.migrations);
       DROP FUNCTION remit.ledger_transactions_with_event, remit.payments_with_key, remit.parts_with_key,
                     remit.idempotency_keys_kept_word, remit.times_refuse CASCADE;
       ALTER TABLE remit.payments DROP CONSTRAINT payments_expires_range_check;
       DROP TRIGGER inbox_read_committed ON remit.inbox;
       DROP TRIGGER idempotency_keys_read_committed ON remit.idempotency_keys;
       DROP TRIGGER outbox_insert_read_committed ON remit.outbox;
       DROP TRIGGER outbox_read_committed ON remit.outbox`,
    );
    const neighbour = new Client({ connectionString: adminDatabaseUrl });
    await neighbour.connect();
    await neighbour.query("BEGIN; LOCK TABLE remit.refunds IN ROW EXCLUSIVE MODE");
    const refusal = await migrate({ adminDatabaseUrl, lockMsMax: 300 }).catch(
      (error: unknown) => error,
    );
    const { pending } = await migrationStatus({ adminDatabaseUrl });
    await neighbour.end();
    expect(refusal).toMatchObject({
      code: "database_unreachable",
      message: expect.stringContaining("nothing was migrated") as string,
    });
    expect(pending).toHaveLength(1);
    expect(await migrate({ adminDatabaseUrl })).toEqual({ applied: pending });
  }, 30_000);

  test("a server that isn't there is database_unreachable", async () => {
    const nowhere = new URL(adminDatabaseUrl);
    nowhere.port = "1";
    await expect(migrate({ adminDatabaseUrl: nowhere.href })).rejects.toMatchObject({
      code: "database_unreachable",
    });
  });
});

describe("checkDatabase", () => {
  test("accepts the application's role and refuses a superuser and an empty database", async () => {
    await checkDatabase(migrated().app);
    const superuser = createDatabase({
      url: migrated().adminUrl,
      poolMax: 1,
      applicationName: "test",
    });
    await expect(checkDatabase(superuser)).rejects.toMatchObject({ code: "usage" });
    await superuser.close();
    const empty = createDatabase({ url: adminDatabaseUrl, poolMax: 1, applicationName: "test" });
    await expect(checkDatabase(empty)).rejects.toMatchObject({
      message: expect.stringContaining("remit migrate up") as string,
    });
    await empty.close();
  });
});
