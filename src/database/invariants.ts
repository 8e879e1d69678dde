import type { PoolClient } from "pg";
import type { Database } from "./database.ts";
import { databaseError } from "./database-error.ts";
import { INVARIANTS, PENDING_BEYOND_GRACE } from "./invariant-queries.ts";
import type { Invariant } from "./invariant-queries.ts";
import { scoped } from "./invariant-scope.ts";
import type { Scope } from "./invariant-scope.ts";

export interface InvariantResult {
  readonly number: number;
  readonly name: string;
  readonly ok: boolean;
  readonly violations: number;
  /** The first few broken rows, each in words that name it. */
  readonly examples: readonly string[];
}

export interface VerifyReport {
  readonly ok: boolean;
  /** Events that wait longer than the grace time: lag, not a break. */
  readonly pendingBeyondGrace: number;
  readonly invariants: readonly InvariantResult[];
}

export interface VerifyInput {
  readonly graceSeconds: number;
  /** All rows where it isn't said. */
  readonly scope?: Scope;
  /** How many broken rows are named of each invariant. */
  readonly examplesMax?: number;
  /** Ends the query that runs; the promise then rejects. */
  readonly signal?: AbortSignal;
}

const EXAMPLES_MAX = 5;

/**
 * Checks all invariants in one snapshot (REPEATABLE READ, READ ONLY); it locks nothing and changes nothing, and runs on a
 * standby as well.
 *
 * @throws DomainError `database_unreachable`
 */
export async function verify(database: Database, input: VerifyInput): Promise<VerifyReport> {
  try {
    const client = await database.pool.connect();
    const stopping = await cancelOnAbort(database, client, input.signal);
    try {
      return await verifyOn(client, input);
    } finally {
      stopping();
      // Its settings must not stay with a pooled session.
      client.release(true);
    }
  } catch (error) {
    throw databaseError(error);
  }
}

/** A query of hours must not outlive who asked for it: a login may cancel its own. */
async function cancelOnAbort(
  { pool }: Database,
  client: PoolClient,
  signal: AbortSignal | undefined,
): Promise<() => void> {
  if (signal === undefined) return () => undefined;
  const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  const cancel = (): void => {
    pool.query("SELECT pg_cancel_backend($1)", [rows[0]?.pid]).catch(() => undefined);
  };
  signal.addEventListener("abort", cancel, { once: true });
  return () => signal.removeEventListener("abort", cancel);
}

/** Over many millions of rows a query may take hours; the pool's own limit is for short work. */
const PATIENT = { query_timeout: 24 * 3_600_000 };

async function verifyOn(client: PoolClient, input: VerifyInput): Promise<VerifyReport> {
  const { graceSeconds } = input;
  client.on("error", () => undefined);
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  // Nobody waits for the answer any more where the process was killed: the server looks, and ends the query.
  await client.query(
    "SET LOCAL statement_timeout = 0; SET LOCAL client_connection_check_interval = '5s'",
  );
  // The planner guesses wrong how little is recent and reads whole tables: 11 s instead of 5 of a million payments.
  if (input.scope?.kind === "recent") await client.query("SET LOCAL enable_seqscan = off");
  const invariants: InvariantResult[] = [];
  for (const invariant of INVARIANTS) invariants.push(await check(client, invariant, input));
  const pending = await client.query<{ count: string }>({
    ...PATIENT,
    text: PENDING_BEYOND_GRACE,
    values: [graceSeconds],
  });
  await client.query("COMMIT");
  return {
    ok: invariants.every(({ ok }) => ok),
    pendingBeyondGrace: Number(pending.rows[0]?.count ?? 0),
    invariants,
  };
}

/** Each query returns one row a violation, with a text that names the row and what is wrong with it. */
async function check(
  client: PoolClient,
  { number, name, violations, usesGrace }: Invariant,
  { graceSeconds, scope = { kind: "full" }, examplesMax = EXAMPLES_MAX }: VerifyInput,
): Promise<InvariantResult> {
  const result = await client.query<{ count: string; examples: string[] | null }>({
    ...PATIENT,
    text: `WITH violation AS MATERIALIZED (${scoped(violations, scope)})
     SELECT (SELECT count(*) FROM violation) AS count,
            (SELECT array_agg(what) FROM (SELECT what FROM violation ORDER BY what LIMIT ${examplesMax}) few) AS examples`,
    values: usesGrace ? [graceSeconds] : [],
  });
  const count = Number(result.rows[0]?.count ?? 0);
  return {
    number,
    name,
    ok: count === 0,
    violations: count,
    examples: result.rows[0]?.examples ?? [],
  };
}
