import { Client } from "pg";
import { runGroup } from "../../src/cli/doctor/check.ts";
import type { CheckResult } from "../../src/cli/doctor/check.ts";
import { databaseGroup } from "../../src/cli/doctor/database.ts";
import { migrate } from "../../src/database/migrate.ts";
import { createLoginRole } from "../../src/database/roles.ts";
import { complaintsOf, settingsOf } from "../support/doctor.ts";
import { startOwnPostgres } from "../support/own-postgres.ts";
import type { OwnPostgres } from "../support/own-postgres.ts";
import { startTransactionPooler } from "../support/transaction-pooler.ts";

// A server of its own: what is planted here befalls every database of a server, those of other tests as well.
jest.setTimeout(60_000);
let postgres: OwnPostgres | undefined;
let adminUrl: string;
let url: string;
let admin: Client | undefined;

beforeAll(async () => {
  postgres = await startOwnPostgres();
  adminUrl = postgres.adminUrl;
  await migrate({ adminDatabaseUrl: adminUrl });
  await createLoginRole({ adminDatabaseUrl: adminUrl, role: "worker", password: "secret-word" });
  const mine = new URL(adminUrl);
  [mine.username, mine.password] = ["worker", "secret-word"];
  url = mine.href;
  admin = new Client({ connectionString: adminUrl });
  await admin.connect();
});

afterAll(async () => {
  await admin?.end();
  await postgres?.stop();
});

/** What the doctor says of PostgreSQL, but of what is ok. */
async function complaints({
  databaseUrl = url,
  now = Date.now,
  env = {},
}: {
  databaseUrl?: string;
  now?: () => number;
  env?: Record<string, string>;
} = {}): Promise<CheckResult[]> {
  const settings = settingsOf({ DATABASE_URL: databaseUrl, ...env });
  return complaintsOf(await runGroup(databaseGroup(settings, { now })));
}

/** Runs SQL as the superuser, one statement after the other: ALTER SYSTEM stands in no transaction. */
async function run(sql: string): Promise<void> {
  const statements = sql.split(/; (?=[A-Z])/);
  for (const statement of statements) await admin?.query(statement);
  // A reload reaches the processes of the server a moment later, and each of them before its next statement.
  if (sql.includes("pg_reload_conf")) await admin?.query("SELECT pg_sleep(0.2)");
}

const RELOAD = "SELECT pg_reload_conf()";

interface Planted {
  readonly plant: string;
  readonly name: string;
  readonly status?: "fail" | "warn";
  readonly found: RegExp;
  /** As it is printed, and typed. */
  readonly fix: string;
}

const MISCONFIGURATIONS: [string, Planted][] = [
  [
    "a role that belongs to the owner",
    {
      plant: "GRANT remit_owner TO worker",
      name: "database.role",
      found: /worker is a member of remit_owner/,
      fix: "REVOKE remit_owner FROM worker",
    },
  ],
  [
    "a role that may make roles",
    {
      plant: "ALTER ROLE worker CREATEROLE",
      name: "database.role",
      found: /CREATEROLE/,
      fix: "ALTER ROLE worker NOCREATEROLE",
    },
  ],
  [
    "a role that is no member of remit_app",
    {
      plant: "REVOKE remit_app FROM worker; GRANT remit_read TO worker",
      name: "database.role",
      found: /worker is no member of remit_app/,
      fix: "GRANT remit_app TO worker",
    },
  ],
  [
    "a role with a right more",
    {
      plant: "GRANT DELETE ON remit.holds TO worker",
      name: "database.rights",
      found: /worker may more than remit_app: holds DELETE/,
      fix: "REVOKE ALL ON ALL TABLES IN SCHEMA remit FROM worker; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA remit FROM worker",
    },
  ],
  [
    "remit_app with a right on a column that no application may change",
    {
      plant: "GRANT UPDATE (posted) ON remit.accounts TO remit_app",
      name: "database.rights",
      found: /remit_app may do what no application may: accounts\.posted UPDATE/,
      fix: "REVOKE UPDATE (posted) ON remit.accounts FROM remit_app, PUBLIC",
    },
  ],
  [
    "remit_app with a right on a whole table",
    {
      plant: "GRANT UPDATE ON remit.accounts TO remit_app",
      name: "database.rights",
      found: /accounts\.held UPDATE, accounts\.posted UPDATE, accounts\.version UPDATE/,
      fix: "REVOKE UPDATE ON remit.accounts FROM remit_app, PUBLIC; GRANT UPDATE (status, metadata) ON remit.accounts TO remit_app",
    },
  ],
  [
    "a trigger that is disabled",
    {
      plant: "ALTER TABLE remit.payments DISABLE TRIGGER payments_transition",
      name: "database.guards",
      found: /trigger payments_transition of payments is disabled/,
      fix: "ALTER TABLE remit.payments ENABLE TRIGGER payments_transition; then remit verify",
    },
  ],
  [
    "session_replication_role for the role",
    {
      plant: "ALTER ROLE worker SET session_replication_role = replica",
      name: "database.guards",
      found: /session_replication_role is replica: no trigger fires/,
      fix: "ALTER ROLE worker RESET session_replication_role; then restart the workers",
    },
  ],
  [
    "fsync and full_page_writes that are off",
    {
      plant: `ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET full_page_writes = off; ${RELOAD}`,
      name: "database.durability",
      found: /fsync, full_page_writes off/,
      fix: `ALTER SYSTEM SET fsync = 'on'; ${RELOAD}; ALTER SYSTEM SET full_page_writes = 'on'; ${RELOAD}`,
    },
  ],
  [
    "synchronous_commit that is off for the database",
    {
      plant: "ALTER DATABASE remit SET synchronous_commit = off",
      name: "database.durability",
      found: /synchronous_commit off: a crash may lose payments/,
      fix: "ALTER DATABASE remit RESET synchronous_commit; then restart the workers",
    },
  ],
  [
    "another isolation level",
    {
      plant: "ALTER ROLE worker IN DATABASE remit SET default_transaction_isolation = serializable",
      name: "database.isolation",
      found: /default_transaction_isolation is serializable/,
      fix: "ALTER ROLE worker IN DATABASE remit RESET default_transaction_isolation; then restart the workers",
    },
  ],
  [
    "transactions that only read",
    {
      plant: "ALTER DATABASE remit SET default_transaction_read_only = on",
      name: "database.writable",
      found: /default_transaction_read_only is on/,
      fix: "ALTER DATABASE remit RESET default_transaction_read_only; then restart the workers",
    },
  ],
  [
    "sessions that end when they are quiet",
    {
      plant: "ALTER ROLE worker SET idle_session_timeout = '1min'",
      name: "database.timeouts",
      status: "warn",
      found: /idle_session_timeout ends a quiet connection after 60000 ms/,
      fix: "ALTER ROLE worker RESET idle_session_timeout; then restart the workers",
    },
  ],
  [
    "autovacuum that is off",
    {
      plant: `ALTER SYSTEM SET autovacuum = off; ${RELOAD}`,
      name: "database.autovacuum",
      found: /autovacuum off/,
      fix: `ALTER SYSTEM SET autovacuum = 'on'; ${RELOAD}`,
    },
  ],
  [
    "a table that autovacuum leaves out",
    {
      plant: "ALTER TABLE remit.outbox SET (autovacuum_enabled = false)",
      name: "database.autovacuum",
      found: /switched off for outbox/,
      fix: "ALTER TABLE remit.outbox RESET (autovacuum_enabled)",
    },
  ],
  [
    "a limit of connections that one worker exceeds",
    {
      plant: "ALTER ROLE worker CONNECTION LIMIT 8",
      name: "database.connections",
      found: /room for 8, /,
      fix: "ALTER ROLE worker CONNECTION LIMIT -1",
    },
  ],
  [
    "a limit of connections that leaves no room for a new version",
    {
      plant: "ALTER DATABASE remit CONNECTION LIMIT 20",
      name: "database.connections",
      status: "warn",
      found: /none is left for a process more/,
      fix: "ALTER DATABASE remit CONNECTION LIMIT -1",
    },
  ],
  [
    "a replication slot that nobody reads",
    {
      plant: "SELECT pg_create_physical_replication_slot('left_behind', true)",
      name: "database.held",
      found: /nobody reads replication slot left_behind/,
      fix: "start its reader, or SELECT pg_drop_replication_slot('left_behind')",
    },
  ],
];

describe("remit doctor, of PostgreSQL", () => {
  test("has nothing to say about a healthy one", async () => {
    expect(await complaints()).toEqual([]);
  });

  test.each(MISCONFIGURATIONS)(
    "names %s, and its fix ends it",
    async (_what, { plant, name, status = "fail", found, fix }) => {
      expect(await complaints()).toEqual([]);
      await run(plant);
      const named = await complaints();
      const sql = fix.replace(/^start its reader, or |; then .*$/g, "");
      await run(sql);
      expect(named.find((result) => result.name === name)).toEqual({
        name,
        status,
        found: expect.stringMatching(found),
        fix,
      });
      await run("REVOKE remit_read FROM worker");
      expect(await complaints()).toEqual([]);
    },
  );

  test("names a superuser, and where a role of the application's own comes from", async () => {
    expect((await complaints({ databaseUrl: adminUrl }))[0]).toEqual({
      name: "database.role",
      status: "fail",
      found: "postgres is a superuser: no guard holds against it",
      fix: "name a role of the application's own in DATABASE_URL; deploy/roles.sql makes one",
    });
  });

  test("names a database without the schema, and that remit migrate up makes it", async () => {
    await run("CREATE DATABASE empty");
    const mine = new URL(url);
    mine.pathname = "/empty";
    const named = await complaints({ databaseUrl: mine.href });
    expect(named[0]).toMatchObject({ name: "database.migrations", fix: "remit migrate up" });
    expect(named[0]?.found).toMatch(/^not applied: 0000_/);
  });

  test("names a migration that hasn't run, and one that was edited", async () => {
    await run("CREATE TABLE kept AS SELECT * FROM remit.migrations ORDER BY id DESC LIMIT 1");
    await run("UPDATE remit.migrations SET hash = 'edited' WHERE id = (SELECT id FROM kept)");
    const edited = await complaints();
    await run("DELETE FROM remit.migrations WHERE id = (SELECT id FROM kept)");
    const pending = await complaints();
    await run("INSERT INTO remit.migrations SELECT * FROM kept; DROP TABLE kept");
    expect(edited).toMatchObject([
      { name: "database.migrations", found: expect.stringMatching(/was edited after it had run/) },
    ]);
    expect(pending).toMatchObject([{ name: "database.migrations", fix: "remit migrate up" }]);
    expect(await complaints()).toEqual([]);
  });

  test("names a transaction that was forgotten, and the statement that ends it", async () => {
    const forgetful = new Client({ connectionString: adminUrl, application_name: "forgetful" });
    forgetful.on("error", () => undefined);
    await forgetful.connect();
    const { rows } = await forgetful.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    const pid = rows[0]?.pid;
    await forgetful.query("BEGIN");
    await forgetful.query("SELECT 1");
    expect(await complaints()).toEqual([]);
    // No test waits five minutes: so the doctor sees this one's beginning ten minutes earlier.
    await run("CREATE SCHEMA moved");
    await run(
      `CREATE VIEW moved.pg_stat_activity AS
       SELECT pid, application_name, datname, datid, backend_type,
              xact_start - CASE pid WHEN ${pid} THEN interval '10 minutes' ELSE interval '0' END AS xact_start
         FROM pg_catalog.pg_stat_activity`,
    );
    await run("GRANT USAGE ON SCHEMA moved TO worker");
    await run("GRANT SELECT ON moved.pg_stat_activity TO worker");
    await run("GRANT pg_read_all_stats TO worker");
    const path = new URL(url);
    path.searchParams.set("options", "-c search_path=moved,pg_catalog,remit,public");
    const named = await complaints({ databaseUrl: path.href });
    await run(`SELECT pg_terminate_backend(${pid})`);
    const ended = await complaints({ databaseUrl: path.href });
    await run("REVOKE pg_read_all_stats FROM worker");
    await run("DROP SCHEMA moved CASCADE");
    await forgetful.end().catch(() => undefined);
    expect(named.find(({ name }) => name === "database.held")).toEqual({
      name: "database.held",
      status: "fail",
      found: expect.stringMatching(
        new RegExp(`^transaction pid ${pid} \\(forgetful\\) is open for 6\\d\\d s$`),
      ),
      fix: `SELECT pg_terminate_backend(${pid})`,
    });
    expect(ended.map(({ name }) => name)).not.toContain("database.held");
  });

  test("names who keeps a whole table from all others, and its fix ends it", async () => {
    const rival = new Client({ connectionString: url, application_name: "hoarder" });
    rival.on("error", () => undefined);
    await rival.connect();
    await rival.query("BEGIN");
    const { rows } = await rival.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    await rival.query("LOCK TABLE remit.outbox IN ACCESS EXCLUSIVE MODE");
    await run("SELECT pg_sleep(3)");
    const named = (await complaints()).find(({ name }) => name === "database.held");
    expect(named).toEqual({
      name: "database.held",
      status: "fail",
      found: `AccessExclusiveLock on outbox of pid ${rows[0]?.pid} (hoarder) stops whoever writes there`,
      fix: `SELECT pg_terminate_backend(${rows[0]?.pid})`,
    });
    await run(named?.fix ?? "");
    expect((await complaints()).map(({ name }) => name)).not.toContain("database.held");
    await rival.end().catch(() => undefined);
  });

  test.each([
    ["ahead of", 60_000],
    ["behind", -60_000],
  ])("names a clock that is %s the other one", async (word, offsetMs) => {
    const [skew, ...others] = await complaints({ now: () => Date.now() - offsetMs });
    expect(others).toEqual([]);
    expect(skew).toEqual({
      name: "database.clock",
      status: "fail",
      found: `PostgreSQL's clock is 60.0 s ${word} this machine's`,
      fix: "synchronise both machines by NTP (chronyc tracking, timedatectl)",
    });
  });

  test("names a pooler in transaction mode, and the time limits that it swallows", async () => {
    const pooler = await startTransactionPooler(url);
    const named = await complaints({ databaseUrl: pooler.urlOf(url) });
    await pooler.close();
    const sessionMode =
      "put the pooler into session mode, or connect to PostgreSQL itself: DATABASE_URL";
    expect(named).toEqual([
      {
        name: "database.session",
        status: "warn",
        found: "the server's process changes between statements: a pooler in transaction mode",
        fix: sessionMode,
      },
      {
        name: "database.listen",
        status: "warn",
        found: "LISTEN is deaf, so the relay only polls: an event waits REMIT_POLL_INTERVAL_MS",
        fix: sessionMode,
      },
      {
        name: "database.timeouts",
        status: "fail",
        found: expect.stringMatching(/statement_timeout is 0 ms instead of 5000, /),
        fix: "ALTER ROLE worker SET statement_timeout = 5000; ALTER ROLE worker SET lock_timeout = 2000; ALTER ROLE worker SET idle_in_transaction_session_timeout = 5000; then restart the workers",
      },
    ]);
  });

  test("names more pool than the server has room for", async () => {
    const named = await complaints({ env: { REMIT_DATABASE_POOL_MAX: "80" } });
    expect(named).toMatchObject([{ name: "database.connections", status: "fail" }]);
    expect(named[0]?.fix).toMatch(/^raise max_connections .* REMIT_DATABASE_POOL_MAX \(80\)$/);
  });

  test.each([
    ["a password that is wrong", (at: URL) => (at.password = "other"), /28P01/, /ALTER ROLE/],
    ["a database that isn't there", (at: URL) => (at.pathname = "/absent"), /3D000/, /roles\.sql/],
    ["a port where nobody is", (at: URL) => (at.port = "1"), /ECONNREFUSED/, /^start PostgreSQL/],
  ])("names %s and shows no password", async (_what, change, found, fix) => {
    const wrong = new URL(url);
    change(wrong);
    const [first, ...others] = await complaints({ databaseUrl: wrong.href });
    expect(first).toEqual({
      name: "database.reachable",
      status: "fail",
      found: expect.stringMatching(found),
      fix: expect.stringMatching(fix),
    });
    expect(others.map(({ status }) => status)).toEqual(others.map(() => "unknown"));
    expect(JSON.stringify([first, others])).not.toMatch(/secret-word|other"/);
  });
});
