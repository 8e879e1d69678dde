import { drizzle } from "drizzle-orm/node-postgres";
import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import { Pool } from "pg";
import type { PoolClient, QueryResultRow } from "pg";
import { databaseError, isConnectionLoss, isRetryableConflict } from "./database-error.ts";
import * as schema from "./schema.ts";

/** A statement with a name: PostgreSQL parses and plans it once a connection. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

/** What a statement runs on: the caller's transaction, or the pool for a statement that is a transaction by itself. */
export interface Tx {
  readonly run: <Row extends QueryResultRow>(
    statement: Statement,
    values: readonly unknown[],
  ) => Promise<Row[]>;
}

/** A pool with its typed query builder; `close` waits for what is running. */
export interface Database extends Tx {
  readonly orm: NodePgDatabase<typeof schema>;
  readonly pool: Pool;
  readonly close: () => Promise<void>;
}

export interface DatabaseOptions {
  readonly url: string;
  readonly poolMax: number;
  readonly applicationName: string;
}

/** Longest that one statement may take and that a lock may be waited for, in ms: far below the activities' time-outs. */
const STATEMENT_TIMEOUT_MS = 5_000;
const LOCK_TIMEOUT_MS = 2_000;
/** What each session asks the server to hold to; behind a pooler that swallows it the role must say the same. */
export const SESSION_TIMEOUTS = {
  statement_timeout: STATEMENT_TIMEOUT_MS,
  lock_timeout: LOCK_TIMEOUT_MS,
  idle_in_transaction_session_timeout: STATEMENT_TIMEOUT_MS,
} as const;
/**
 * Whatever role, database or server say: a commit that was answered survives a crash, the locks and guards get the
 * isolation that they expect, and times come in the one format that the driver reads.
 */
const SESSION_PINS = {
  synchronous_commit: "on",
  default_transaction_isolation: String.raw`read\ committed`,
  default_transaction_read_only: "off",
  datestyle: "ISO",
  intervalstyle: "postgres",
} as const;
/** A half-open connection answers nothing, not even that a statement took too long. */
const ANSWER_TIMEOUT_MS = 7_000;
const CONNECT_TIMEOUT_MS = 3_000;
/** A deadlock or a serialisation failure is the database's request to try again; three times is plenty for short work. */
const CONFLICT_ATTEMPTS_MAX = 4;

export function createDatabase({ url, poolMax, applicationName }: DatabaseOptions): Database {
  const pool = new Pool({
    connectionString: withPins(url),
    max: poolMax,
    application_name: applicationName,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    ...SESSION_TIMEOUTS,
    query_timeout: ANSWER_TIMEOUT_MS,
    keepAlive: true,
  });
  // An idle connection that dies (a restart of PostgreSQL) is replaced at the next use; without a listener it ends us.
  pool.on("error", () => undefined);
  return {
    orm: drizzle(pool, { schema }),
    pool,
    run: async (statement, values) =>
      await guarded(async () => await runOn(pool, statement, values)),
    close: async () => {
      await pool.end();
    },
  };
}

/** Behind the options of the URL's own, so that ours hold. */
function withPins(url: string): string {
  const target = new URL(url);
  const pins = Object.entries(SESSION_PINS).map(([name, value]) => `-c ${name}=${value}`);
  const own = target.searchParams.get("options");
  target.searchParams.set("options", [...(own === null ? [] : [own]), ...pins].join(" "));
  return target.href;
}

/**
 * The only place that opens a transaction (READ COMMITTED: the locks and guards decide). A deadlock or a serialisation
 * failure runs `work` again from the start, so it must not have effects outside of `tx`.
 *
 * @throws DomainError `database_unreachable`, and whatever `work` throws, after the rollback
 */
export async function inTransaction<Result>(
  database: Database,
  work: (tx: Tx) => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await guarded(async () => await attemptTransaction(database.pool, work));
    } catch (error) {
      if (attempt >= CONFLICT_ATTEMPTS_MAX || !isRetryableConflict(error)) throw error;
    }
  }
}

async function attemptTransaction<Result>(
  pool: Pool,
  work: (tx: Tx) => Promise<Result>,
): Promise<Result> {
  const client = await pool.connect();
  let broken: Error | undefined;
  const noteBroken = (error: Error): void => {
    broken = error;
  };
  client.on("error", noteBroken);
  try {
    await client.query("BEGIN");
    const result = await work({
      run: async (statement, values) => await runOn(client, statement, values),
    });
    await client.query("COMMIT");
    return result;
  } catch (error) {
    // A connection that can't even roll back is thrown away; PostgreSQL rolls back when it sees the end of it.
    if (isConnectionLoss(error)) noteBroken(error);
    else await client.query("ROLLBACK").catch(noteBroken);
    throw error;
  } finally {
    client.off("error", noteBroken);
    client.release(broken);
  }
}

async function runOn<Row extends QueryResultRow>(
  client: Pool | PoolClient,
  { name, text }: Statement,
  values: readonly unknown[],
): Promise<Row[]> {
  const result = await client.query<Row>({ name, text, values: [...values] });
  return result.rows;
}

async function guarded<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw databaseError(error);
  }
}

/** The typed query builder reports failures through the same map as everything else. */
export async function query<Result>(work: () => PromiseLike<Result>): Promise<Result> {
  return await guarded(async () => await work());
}
