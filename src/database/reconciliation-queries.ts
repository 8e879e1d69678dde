import { v7 as uuidv7 } from "uuid";
import type { Tx } from "./database.ts";
import type { InvariantResult } from "./invariants.ts";
import type { Operator } from "./operator-queries.ts";

/** Statements of `remit.reconciliations` and `remit.findings`: what each look at the books found, and what people said of it. */

export type ReconciliationScope = "recent" | "full";

export interface Reconciliation {
  readonly reconciliationId: string;
  readonly scope: ReconciliationScope;
  readonly startedAt: Date;
  readonly finishedAt: Date;
  readonly ok: boolean;
  readonly pendingBeyondGrace: number;
  readonly invariants: readonly InvariantResult[];
}

export interface Finding {
  readonly findingId: string;
  readonly invariant: number;
  readonly what: string;
  readonly firstSeenAt: Date;
  readonly lastSeenAt: Date;
  /** When a full look no longer found it. */
  readonly clearedAt: Date | null;
  readonly acknowledgedAt: Date | null;
  readonly acknowledgedBy: string | null;
  readonly reason: string | null;
}

/** Longer texts are cut; the column takes no more characters. */
const WHAT_CHARACTERS_MAX = 2_000;

/** The server's time, and how long ago the last look began; null where there was none. */
export async function readClock(tx: Tx): Promise<{ now: Date; sinceLastSeconds: number | null }> {
  const [row] = await tx.run<{ now: Date; since_last_seconds: number | null }>(
    {
      name: "read_reconciliation_clock",
      text: `SELECT clock_timestamp() AS now,
                    extract(epoch FROM clock_timestamp() - (SELECT max(last.started_at)
                                                              FROM (VALUES ('recent'), ('full')) scopes (scope)
                                                             CROSS JOIN LATERAL (SELECT r.started_at
                                                                                   FROM remit.reconciliations r
                                                                                  WHERE r.scope = scopes.scope
                                                                                  ORDER BY r.finished_at DESC
                                                                                  LIMIT 1) last))::float8 AS since_last_seconds`,
    },
    [],
  );
  if (row === undefined) throw new Error("read_reconciliation_clock returned no row");
  return { now: row.now, sinceLastSeconds: row.since_last_seconds };
}

export async function insertReconciliation(
  tx: Tx,
  {
    scope,
    startedAt,
    ok,
    pendingBeyondGrace,
    invariants,
  }: Omit<Reconciliation, "reconciliationId" | "finishedAt">,
): Promise<string> {
  const id = uuidv7();
  await tx.run(
    {
      name: "insert_reconciliation",
      text: `INSERT INTO remit.reconciliations (id, scope, started_at, ok, pending_beyond_grace, invariants)
             VALUES ($1, $2, $3, $4, $5, $6)`,
    },
    [id, scope, startedAt, ok, pendingBeyondGrace, JSON.stringify(invariants)],
  );
  return id;
}

export interface Seen {
  readonly invariant: number;
  readonly what: string;
}

/** Keeps what was seen; a break that is known already is seen once more. */
export async function keepFindings(tx: Tx, seen: readonly Seen[]): Promise<void> {
  await tx.run(
    {
      name: "keep_findings",
      text: `INSERT INTO remit.findings (id, invariant, what)
             SELECT DISTINCT ON (invariant, what) id, invariant, what
               FROM unnest($1::uuid[], $2::smallint[], $3::text[]) seen (id, invariant, what)
                 ON CONFLICT (invariant, md5(what)) WHERE cleared_at IS NULL
                 DO UPDATE SET last_seen_at = clock_timestamp()`,
    },
    [
      seen.map(() => uuidv7()),
      seen.map(({ invariant }) => invariant),
      seen.map(({ what }) => what.slice(0, WHAT_CHARACTERS_MAX)),
    ],
  );
}

/** Clears what a full look didn't see again of these invariants. */
export async function clearUnseen(
  tx: Tx,
  { invariants, before }: { invariants: readonly number[]; before: Date },
): Promise<void> {
  await tx.run(
    {
      name: "clear_unseen_findings",
      text: `UPDATE remit.findings
                SET cleared_at = clock_timestamp()
              WHERE cleared_at IS NULL
                AND last_seen_at < $2
                AND invariant = ANY ($1::smallint[])`,
    },
    [invariants, before],
  );
}

/** The looks at what was recent are a log of the last weeks; the full ones stay for ever. */
const RECENT_KEPT = "30 days";

export async function forgetOldLooks(tx: Tx): Promise<void> {
  await tx.run(
    {
      name: "forget_old_looks",
      text: `DELETE FROM remit.reconciliations
              WHERE scope = 'recent'
                AND ok
                AND finished_at < clock_timestamp() - interval '${RECENT_KEPT}'`,
    },
    [],
  );
}

/** How many breaks stand that nobody has acknowledged. */
export async function countUnacknowledged(tx: Tx): Promise<number> {
  const [row] = await tx.run<{ count: string }>(
    {
      name: "count_unacknowledged_findings",
      text: `SELECT count(*) AS count
               FROM remit.findings
              WHERE cleared_at IS NULL
                AND acknowledged_at IS NULL`,
    },
    [],
  );
  return Number(row?.count ?? 0);
}

/** The newest first. */
export async function listReconciliations(
  tx: Tx,
  { limit }: { limit: number },
): Promise<Reconciliation[]> {
  const rows = await tx.run<Omit<Reconciliation, "pendingBeyondGrace"> & { pending: string }>(
    {
      name: "list_reconciliations",
      text: `SELECT id AS "reconciliationId", scope, started_at AS "startedAt", finished_at AS "finishedAt", ok,
                    pending_beyond_grace AS pending, invariants
               FROM remit.reconciliations
              ORDER BY finished_at DESC
              LIMIT $1`,
    },
    [limit],
  );
  return rows.map(({ pending, ...row }) => ({ ...row, pendingBeyondGrace: Number(pending) }));
}

const FINDING = `id AS "findingId", invariant, what, first_seen_at AS "firstSeenAt", last_seen_at AS "lastSeenAt", cleared_at AS "clearedAt",
                    acknowledged_at AS "acknowledgedAt", acknowledged_by AS "acknowledgedBy", reason`;

/** What stands, the newest first; with `isAll` also what a full look no longer found. */
export async function listFindings(
  tx: Tx,
  { isAll, limit }: { isAll: boolean; limit: number },
): Promise<Finding[]> {
  return await tx.run<Finding & Record<string, unknown>>(
    {
      name: isAll ? "list_all_findings" : "list_findings",
      text: `SELECT ${FINDING}
               FROM remit.findings
              ${isAll ? "" : "WHERE cleared_at IS NULL"}
              ORDER BY first_seen_at DESC, id DESC
              LIMIT $1`,
    },
    [limit],
  );
}

/** Locks these findings; those that don't exist are left out. */
export async function lockFindings(tx: Tx, ids: readonly string[]): Promise<Finding[]> {
  return await tx.run<Finding & Record<string, unknown>>(
    {
      name: "lock_findings",
      text: `SELECT ${FINDING}
               FROM remit.findings
              WHERE id = ANY ($1::uuid[])
              ORDER BY id
                FOR NO KEY UPDATE`,
    },
    [ids],
  );
}

export async function markAcknowledged(
  tx: Tx,
  { ids, operator }: { ids: readonly string[]; operator: Operator },
): Promise<void> {
  await tx.run(
    {
      name: "mark_acknowledged",
      text: `UPDATE remit.findings
                SET acknowledged_at = clock_timestamp(), acknowledged_by = $2, reason = $3
              WHERE id = ANY ($1::uuid[])`,
    },
    [ids, operator.actor, operator.reason],
  );
}
