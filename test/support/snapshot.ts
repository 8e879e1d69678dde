import { Client } from "pg";
import type { TestDatabase } from "./database.ts";
import { testServices } from "./services.ts";

/** The database of this moment, as a backup or a standby that lags would have it; who is connected has to connect anew. */
export async function takeSnapshot({ url }: Pick<TestDatabase, "url">): Promise<void> {
  const name = nameOf(url);
  await asAdministrator(
    `ALTER DATABASE ${name} ALLOW_CONNECTIONS false`,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`,
    `CREATE DATABASE ${name}_then TEMPLATE ${name}`,
    `ALTER DATABASE ${name} ALLOW_CONNECTIONS true`,
  );
}

/** Puts the snapshot in the database's place, once. */
export async function restoreSnapshot({ url }: Pick<TestDatabase, "url">): Promise<void> {
  const name = nameOf(url);
  await asAdministrator(
    `DROP DATABASE ${name} WITH (FORCE)`,
    `ALTER DATABASE ${name}_then RENAME TO ${name}`,
    `ALTER DATABASE ${name} ALLOW_CONNECTIONS true`,
  );
}

function nameOf(url: string): string {
  return new URL(url).pathname.slice(1);
}

async function asAdministrator(...statements: string[]): Promise<void> {
  const client = new Client({ connectionString: testServices().REMIT_TEST_ADMIN_DATABASE_URL });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}
