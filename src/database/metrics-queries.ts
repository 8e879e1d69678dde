import { inTransaction } from "./database.ts";
import type { Database, Tx } from "./database.ts";
import { INVARIANTS } from "./invariant-queries.ts";

/**
 * What a scrape wants to know of PostgreSQL: open rows by their partial indexes, and statistics that PostgreSQL keeps
 * anyway. Nothing here grows with what is published or settled.
 */
export interface DatabaseFigures {
  readonly pending: number;
  readonly dead: number;
  /** 0 where nothing waits. */
  readonly oldestPendingAgeSeconds: number;
  readonly openPayments: readonly { readonly status: string; readonly count: number }[];
  readonly stuck: Readonly<Record<"payment" | "capture" | "refund", number>>;
  readonly horizons: readonly Horizon[];
  readonly tables: readonly TableFigures[];
  /** Of each invariant, breaks that stand and that nobody has acknowledged. */
  readonly findings: readonly { readonly invariant: number; readonly count: number }[];
  /** When a look at the books last came to its end; seconds since 1970. */
  readonly reconciled: readonly { readonly scope: string; readonly finishedAt: number }[];
}

/** The oldest transaction of a kind of holder that VACUUM must still keep rows for. */
export interface Horizon {
  readonly holder: "session" | "slot" | "prepared";
  /** Null where none holds anything. */
  readonly xid: string | null;
  /** Transactions since. */
  readonly age: number;
}

export interface TableFigures {
  readonly table: string;
  readonly deadTuples: number;
  readonly liveTuples: number;
  readonly bytes: number;
}

export interface DatabaseFiguresInput {
  /** Open and unchanged for so long is stuck; an authorization, since its expiry. */
  readonly overdueAfterSeconds: number;
}

export async function readDatabaseFigures(
  database: Database,
  input: DatabaseFiguresInput,
): Promise<DatabaseFigures> {
  return await inTransaction(database, async (tx) => {
    // Statistics that lie after an emptied backlog would have the planner read the whole outbox.
    await tx.run({ name: "metrics_no_seqscan", text: "SET LOCAL enable_seqscan = off" }, []);
    return {
      ...(await outboxFigures(tx)),
      ...(await paymentFigures(tx, input)),
      horizons: await horizons(tx),
      tables: await tables(tx),
      findings: await findings(tx),
      reconciled: await reconciled(tx),
    };
  });
}

async function outboxFigures(
  tx: Tx,
): Promise<Pick<DatabaseFigures, "pending" | "dead" | "oldestPendingAgeSeconds">> {
  const [row] = await tx.run<{ pending: string; dead: string; age: number }>(
    {
      name: "metrics_outbox",
      text: `SELECT count(*) FILTER (WHERE status = 'PENDING') AS pending,
                    count(*) FILTER (WHERE status = 'DEAD') AS dead,
                    coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE status = 'PENDING'))), 0)::float8 AS age
               FROM remit.outbox
              WHERE status IN ('PENDING', 'DEAD')`,
    },
    [],
  );
  return {
    pending: Number(row?.pending ?? 0),
    dead: Number(row?.dead ?? 0),
    oldestPendingAgeSeconds: row?.age ?? 0,
  };
}

async function paymentFigures(
  tx: Tx,
  { overdueAfterSeconds }: DatabaseFiguresInput,
): Promise<Pick<DatabaseFigures, "openPayments" | "stuck">> {
  const payments = await tx.run<{ status: string; count: string; stuck: string }>(
    {
      name: "metrics_payments",
      text: `SELECT status, count(*) AS count,
                    count(*) FILTER (WHERE CASE status WHEN 'authorized' THEN expires_at ELSE updated_at END
                                           < clock_timestamp() - $1 * interval '1 second') AS stuck
               FROM remit.payments
              WHERE status IN ('pending', 'authorized', 'captured')
              GROUP BY status`,
    },
    [overdueAfterSeconds],
  );
  const [parts] = await tx.run<{ captures: string; refunds: string }>(
    {
      name: "metrics_parts",
      text: `SELECT (SELECT count(*) FROM remit.captures
                      WHERE status = 'pending' AND created_at < clock_timestamp() - $1 * interval '1 second') AS captures,
                    (SELECT count(*) FROM remit.refunds
                      WHERE status = 'pending' AND created_at < clock_timestamp() - $1 * interval '1 second') AS refunds`,
    },
    [overdueAfterSeconds],
  );
  return {
    openPayments: payments.map(({ status, count }) => ({ status, count: Number(count) })),
    stuck: {
      payment: payments.reduce((sum, { stuck }) => sum + Number(stuck), 0),
      capture: Number(parts?.captures ?? 0),
      refund: Number(parts?.refunds ?? 0),
    },
  };
}

/**
 * Of other sessions PostgreSQL shows an ordinary role the process id, the database and the transaction ids, which is all
 * that is needed here; since when, and what they do, only a member of pg_read_all_stats sees.
 */
async function horizons(tx: Tx): Promise<Horizon[]> {
  return await tx.run<Horizon & Record<string, unknown>>(
    {
      name: "metrics_horizons",
      text: `SELECT holder, oldest.xid, coalesce(oldest.age, 0)::integer AS age
               FROM (VALUES ('session'), ('slot'), ('prepared')) AS holders (holder)
               LEFT JOIN LATERAL (
                    SELECT h.xid::text AS xid, age(h.xid) AS age
                      FROM (SELECT 'session' AS of, unnest(ARRAY[a.backend_xid, a.backend_xmin]) AS xid
                              FROM pg_stat_activity a
                             WHERE a.pid <> pg_backend_pid()
                               AND (a.datid IS NULL OR a.datname = current_database())
                               AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
                            UNION ALL
                            SELECT 'slot', xmin FROM pg_replication_slots
                            UNION ALL
                            SELECT 'prepared', transaction FROM pg_prepared_xacts WHERE database = current_database()) h
                     WHERE h.of = holder AND h.xid IS NOT NULL
                     ORDER BY age(h.xid) DESC
                     LIMIT 1) oldest ON true`,
    },
    [],
  );
}

async function tables(tx: Tx): Promise<TableFigures[]> {
  const rows = await tx.run<Record<"table" | "dead" | "live" | "bytes", string>>(
    {
      name: "metrics_tables",
      text: `SELECT relname AS table, n_dead_tup AS dead, n_live_tup AS live, pg_total_relation_size(relid) AS bytes
               FROM pg_stat_user_tables
              WHERE schemaname = 'remit'`,
    },
    [],
  );
  return rows.map(({ table, dead, live, bytes }) => ({
    table,
    deadTuples: Number(dead),
    liveTuples: Number(live),
    bytes: Number(bytes),
  }));
}

const NUMBERS = INVARIANTS.map(({ number }) => number).join(",");

async function findings(tx: Tx): Promise<DatabaseFigures["findings"]> {
  const rows = await tx.run<{ invariant: number; count: string }>(
    {
      name: "metrics_findings",
      text: `SELECT invariant, count(*) FILTER (WHERE f.acknowledged_at IS NULL AND f.id IS NOT NULL) AS count
               FROM unnest('{${NUMBERS}}'::smallint[]) invariants (invariant)
               LEFT JOIN (SELECT id, invariant, acknowledged_at
                            FROM remit.findings
                           WHERE cleared_at IS NULL) f USING (invariant)
              GROUP BY invariant
              ORDER BY invariant`,
    },
    [],
  );
  return rows.map(({ invariant, count }) => ({ invariant, count: Number(count) }));
}

async function reconciled(tx: Tx): Promise<DatabaseFigures["reconciled"]> {
  return await tx.run<{ scope: string; finishedAt: number }>(
    {
      name: "metrics_reconciled",
      text: `SELECT scope, extract(epoch FROM max(finished_at))::float8 AS "finishedAt"
               FROM remit.reconciliations
              GROUP BY scope
              ORDER BY scope`,
    },
    [],
  );
}
