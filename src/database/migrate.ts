import { setTimeout as delay } from "node:timers/promises";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { drizzle } from "drizzle-orm/node-postgres";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { migrate as drizzleMigrate } from "drizzle-orm/node-postgres/migrator";
import { Client } from "pg";
import { DomainError } from "../domain/errors.ts";
import { databaseError } from "./database-error.ts";
import { createGroupRoles } from "./roles.ts";

const MIGRATIONS_FOLDER = fileURLToPath(new URL("../../migrations", import.meta.url));
/** Any fixed number: it names the lock that lets one migrator at a time through. */
const MIGRATION_LOCK = 7_306_871;

export interface MigrationInput {
  /** A login that may create roles and schemas. */
  readonly adminDatabaseUrl: string;
  /** How long another migration is waited for, ms; a minute unless said. */
  readonly lockMsMax?: number;
}

export interface MigrationStatus {
  readonly applied: readonly string[];
  readonly pending: readonly string[];
  /** How many have run of which this version knows nothing: a newer one has migrated. */
  readonly unknown: number;
}

/**
 * Brings the schema to this version, under an advisory lock and in one transaction. A second call applies nothing.
 *
 * @throws DomainError `usage` where a migration that has run was edited, `database_unreachable`
 */
export async function migrate(input: MigrationInput): Promise<{ applied: readonly string[] }> {
  return await withClient(input, async (client) => {
    await takeMigrationLock(client, input.lockMsMax ?? LOCK_MS_MAX);
    await createGroupRoles(client);
    await client.query("CREATE SCHEMA IF NOT EXISTS remit AUTHORIZATION remit_owner");
    await client.query(
      `DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO remit_owner', current_database()); END $$`,
    );
    const { pending } = await statusOf(client);
    await client.query("SET ROLE remit_owner");
    await applyPatiently(client, input.lockMsMax ?? LOCK_MS_MAX);
    return { applied: pending };
  });
}

/**
 * A migration that waits for the lock of one table keeps those that it has from everybody: it gives up soon, and tries again
 * when the product had time to go on.
 */
async function applyPatiently(client: Client, lockMsMax: number): Promise<void> {
  const endsAt = Date.now() + lockMsMax;
  await client.query("SELECT set_config('lock_timeout', $1, false)", [String(TABLE_LOCK_MS)]);
  for (;;) {
    try {
      await drizzleMigrate(drizzle(client), {
        migrationsFolder: MIGRATIONS_FOLDER,
        migrationsSchema: "remit",
        migrationsTable: "migrations",
      });
      return;
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      if (Date.now() >= endsAt) {
        throw new DomainError(
          "database_unreachable",
          `for ${lockMsMax / 1_000} s some session has had a transaction open on Remit's tables, and nothing was migrated: end it, see pg_stat_activity`,
          { cause: error },
        );
      }
      await delay(TABLE_LOCK_PAUSE_MS);
    }
  }
}

const TABLE_LOCK_MS = 2_000;
const TABLE_LOCK_PAUSE_MS = 2_000;

function isLockTimeout(error: unknown): boolean {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } };
  return code === LOCK_NOT_AVAILABLE || cause?.code === LOCK_NOT_AVAILABLE;
}

const LOCK_NOT_AVAILABLE = "55P03";

/** Another one's migration takes seconds; who holds the lock for longer is named, and not waited for without a word. */
async function takeMigrationLock(client: Client, lockMsMax: number): Promise<void> {
  await client.query("SELECT set_config('lock_timeout', $1, false)", [String(lockMsMax)]);
  try {
    await client.query("SELECT pg_advisory_lock($1)", [MIGRATION_LOCK]);
  } catch (error) {
    if (!isLockTimeout(error)) throw error;
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
      [MIGRATION_LOCK],
    );
    const holders = rows.map(({ pid }) => pid).join(", ");
    throw new DomainError(
      "database_unreachable",
      `session ${holders} has held the lock of migrations for ${lockMsMax / 1_000} s: wait for it, or SELECT pg_terminate_backend(${holders})`,
      { cause: error },
    );
  }
}

const LOCK_MS_MAX = 60_000;

/** What has run and what has not; changes nothing. */
export async function migrationStatus(input: MigrationInput): Promise<MigrationStatus> {
  return await withClient(input, statusOf);
}

async function statusOf(client: Client): Promise<MigrationStatus> {
  const files = readMigrationFiles({ migrationsFolder: MIGRATIONS_FOLDER });
  const names = migrationNames();
  const exists = await client.query<{ found: boolean }>(
    "SELECT to_regclass('remit.migrations') IS NOT NULL AS found",
  );
  const rows =
    exists.rows[0]?.found === true
      ? (await client.query<{ hash: string }>("SELECT hash FROM remit.migrations ORDER BY id")).rows
      : [];
  for (const [index, { hash }] of rows.entries()) {
    if (index < files.length && files[index]?.hash !== hash) {
      throw new DomainError(
        "usage",
        `migration ${names[index]} was edited after it had run: restore the file and write a new migration`,
      );
    }
  }
  return {
    applied: names.slice(0, rows.length),
    pending: names.slice(rows.length),
    unknown: Math.max(0, rows.length - files.length),
  };
}

function migrationNames(): string[] {
  const journal: unknown = JSON.parse(
    readFileSync(`${MIGRATIONS_FOLDER}/meta/_journal.json`, "utf8"),
  );
  return (journal as { entries: { tag: string }[] }).entries.map(({ tag }) => tag);
}

async function withClient<Result>(
  { adminDatabaseUrl }: MigrationInput,
  work: (client: Client) => Promise<Result>,
): Promise<Result> {
  const client = new Client({ connectionString: adminDatabaseUrl, connectionTimeoutMillis: 5_000 });
  client.on("error", () => undefined);
  try {
    await client.connect();
    return await work(client);
  } catch (error) {
    throw databaseError(error);
  } finally {
    await client.end().catch(() => undefined);
  }
}
