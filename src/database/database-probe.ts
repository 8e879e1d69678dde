import { Pool } from "pg";
import { databaseError } from "./database-error.ts";

export interface DatabaseProbe {
  /** Resolves where PostgreSQL answers. */
  readonly answers: () => Promise<void>;
  readonly close: () => Promise<void>;
}

/** Under the bound of the health check, so that the reason is PostgreSQL's and not that the check was late. */
const ANSWER_MS_MAX = 1_500;

/**
 * Asks over a connection of its own: a full pool under load is no outage, and a connection that hangs is given up here
 * after a moment and not after the minutes that TCP takes.
 */
export function createDatabaseProbe(databaseUrl: string): DatabaseProbe {
  const pool = new Pool({
    connectionString: databaseUrl,
    max: 1,
    application_name: "remit-health",
    connectionTimeoutMillis: ANSWER_MS_MAX,
    query_timeout: ANSWER_MS_MAX,
    keepAlive: true,
  });
  pool.on("error", () => undefined);
  return {
    answers: async () => {
      try {
        await pool.query("SELECT 1");
      } catch (error) {
        throw databaseError(error);
      }
    },
    close: async () => {
      await pool.end();
    },
  };
}
