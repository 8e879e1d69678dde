import { Client } from "pg";
import type { Pool } from "pg";
import { verify } from "../../src/database/invariants.ts";
import type { VerifyReport } from "../../src/database/invariants.ts";
import type { TestDatabase } from "./database.ts";

/** What `verify` finds after the superuser has run this with all triggers off; nothing of it stays. */
export async function verifyPlanted(
  { app, adminUrl }: Pick<TestDatabase, "app" | "adminUrl">,
  sql: string,
): Promise<VerifyReport> {
  const client = new Client({ connectionString: adminUrl });
  await client.connect();
  try {
    await client.query("BEGIN");
    await client.query("SET LOCAL session_replication_role = replica");
    await client.query(sql);
    const planted = { ...app, pool: poolOf(client) };
    const report = await verify(planted, { graceSeconds: 60 });
    const scope = { kind: "recent", seconds: 3_600 } as const;
    const recent = await verify(planted, { graceSeconds: 60, scope });
    const [seen, all] = [brokenOf(recent), brokenOf(report)];
    expect([seen.length > 0, all]).toEqual([all.length > 0, expect.arrayContaining(seen)]);
    return report;
  } finally {
    await client.end();
  }
}

/** The numbers of the invariants that don't hold. */
export function brokenOf({ invariants }: VerifyReport): number[] {
  return invariants.filter(({ ok }) => !ok).map(({ number }) => number);
}

/** A pool of this one connection, whose transaction goes on: what `verify` opens and ends is left out. */
export function poolOf(client: Client): Pool {
  const query = async (config: string | { text: string }): Promise<unknown> => {
    if (typeof config === "string" && /^(BEGIN|COMMIT)/.test(config)) return undefined;
    return await client.query(config);
  };
  const on = (): void => undefined;
  return { connect: async () => ({ query, on, release: on }) } as unknown as Pool;
}
