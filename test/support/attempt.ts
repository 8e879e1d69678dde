import type { TestDatabase } from "./database.ts";

export type Statement = [text: string, ...values: unknown[]];

/** Has every judge look before anything is wrong, and then again at the end of the transaction only. */
const JUDGED_TOO_EARLY: Statement[] = [
  ["UPDATE remit.payments SET updated_at = clock_timestamp()"],
  ["SET CONSTRAINTS ALL IMMEDIATE"],
  ["SET CONSTRAINTS ALL DEFERRED"],
];

/**
 * Runs statements in one transaction as the application and answers with what stopped them, or "nothing". What is stopped
 * is tried once more with the deferred judges outwitted, where the application may do that, and must be stopped by the same.
 */
export async function attempt(at: TestDatabase, ...statements: Statement[]): Promise<string> {
  const plain = await attemptOnce(at, statements);
  if (plain === "nothing") return plain;
  const early = await attemptOnce(at, [...JUDGED_TOO_EARLY, ...statements]);
  return early === plain ? plain : `${plain}, but judged too early: ${early}`;
}

async function attemptOnce(at: TestDatabase, statements: readonly Statement[]): Promise<string> {
  const client = await at.app.pool.connect();
  try {
    await client.query("BEGIN");
    for (const [text, ...values] of statements) await client.query(text, values);
    await client.query("COMMIT");
    return "nothing";
  } catch (error) {
    const { code, constraint } = error as { code?: string; constraint?: string };
    return constraint ?? code ?? String(error);
  } finally {
    await client.query("ROLLBACK");
    client.release();
  }
}
