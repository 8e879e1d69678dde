import { Client } from "pg";
import { verify } from "../../src/database/invariants.ts";
import type { Statement } from "./attempt.ts";
import type { TestDatabase } from "./database.ts";
import { poolOf } from "./planted.ts";

/** How an attack ended that a guard was taken away for. */
export interface Attack {
  /** The constraint or SQLSTATE that stopped it, or "nothing". */
  readonly stoppedBy: string;
  /** The numbers of the invariants that `verify` then finds broken. */
  readonly broken: readonly number[];
}

/**
 * Runs statements as the application's role after the owner's `takeAway`, with what is deferred to the commit judged at
 * their end; nothing of it stays.
 */
export async function attackWithout(
  { app, url, adminUrl }: TestDatabase,
  { takeAway, statements }: { takeAway: readonly string[]; statements: readonly Statement[] },
): Promise<Attack> {
  const client = new Client({ connectionString: adminUrl });
  await client.connect();
  try {
    await client.query("BEGIN");
    for (const sql of takeAway) await client.query(sql);
    await client.query(`SET LOCAL ROLE ${new URL(url).username}`);
    const stoppedBy = await stopOf(client, statements);
    if (stoppedBy !== "nothing") return { stoppedBy, broken: [] };
    await client.query("RESET ROLE");
    const { invariants } = await verify({ ...app, pool: poolOf(client) }, { graceSeconds: 60 });
    return { stoppedBy, broken: invariants.filter(({ ok }) => !ok).map(({ number }) => number) };
  } finally {
    await client.end();
  }
}

async function stopOf(client: Client, statements: readonly Statement[]): Promise<string> {
  try {
    for (const [text, ...values] of statements) await client.query(text, values);
    await client.query("SET CONSTRAINTS ALL IMMEDIATE");
    return "nothing";
  } catch (error) {
    const { code, constraint } = error as { code?: string; constraint?: string };
    return constraint ?? code ?? String(error);
  }
}

/** SQL that replaces one condition of a function: what it had refused passes. */
export function loosen(name: string, condition: string, by = "false"): string {
  const quoted = condition.replaceAll("'", "''");
  return `
    DO $planted$
    DECLARE
      definition text := (SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'remit'::regnamespace AND proname = '${name}');
    BEGIN
      IF position('${quoted}' IN definition) = 0 THEN RAISE EXCEPTION '${name} has no such condition'; END IF;
      EXECUTE replace(definition, '${quoted}', '${by}');
    END $planted$`;
}
