import type { TestDatabase } from "./database.ts";

export type Statement = [text: string, ...values: unknown[]];

/** Runs statements in one transaction as the application and answers with what stopped them, or "nothing". */
export async function attempt(at: TestDatabase, ...statements: Statement[]): Promise<string> {
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
