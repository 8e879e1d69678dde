import { cancellationSignal, heartbeat } from "@temporalio/activity";
import { inTransaction } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { verify } from "../database/invariants.ts";
import type { VerifyReport } from "../database/invariants.ts";
import type { Scope } from "../database/invariant-scope.ts";
import type { Operator } from "../database/operator-queries.ts";
import {
  clearUnseen,
  countUnacknowledged,
  forgetOldLooks,
  insertReconciliation,
  keepFindings,
  lockFindings,
  markAcknowledged,
  readClock,
} from "../database/reconciliation-queries.ts";
import type { Finding, ReconciliationScope, Seen } from "../database/reconciliation-queries.ts";
import { DomainError } from "../domain/errors.ts";

export interface ReconcileInput {
  readonly scope: ReconciliationScope;
}

export interface ReconcileSummary {
  readonly reconciliationId: string;
  readonly ok: boolean;
  readonly violations: number;
  readonly pendingBeyondGrace: number;
  /** Breaks that stand, from this look or an earlier one, and that nobody has acknowledged. */
  readonly unacknowledged: number;
}

export interface ReconciliationActivities {
  readonly reconcile: (input: ReconcileInput) => Promise<ReconcileSummary>;
}

const HEARTBEAT_MS = 5_000;

/** Run twice, the second look is another entry in the log and finds the same. */
export function createReconciliationActivities({
  database,
}: {
  database: Database;
}): ReconciliationActivities {
  return {
    reconcile: async ({ scope }) => {
      const beat = setInterval(() => heartbeat(), HEARTBEAT_MS);
      try {
        return await reconcile(database, { scope, signal: cancellationSignal() });
      } finally {
        clearInterval(beat);
      }
    },
  };
}

/** A program that looks by itself waits for longer than a person: an event that is late by a minute mends itself. */
const GRACE_SECONDS = 300;
/** Each broken row becomes a finding; how many more there are of one invariant is one by itself, so that none is silent. */
const FINDINGS_MAX = 200;
const EXAMPLES_MAX = 5;
/** A look begins before the last one did, so that what was committed meanwhile isn't missed. */
const OVERLAP_SECONDS = 600;
/** After a longer pause the full look of the night sees the rest. */
const RECENT_SECONDS_MAX = 86_400;

/**
 * Checks the invariants and keeps what was found; it corrects nothing. A full look also clears what is no longer broken.
 *
 * @throws DomainError `database_unreachable`
 */
export async function reconcile(
  database: Database,
  { scope, signal }: ReconcileInput & { signal?: AbortSignal },
): Promise<ReconcileSummary> {
  const { now, sinceLastSeconds } = await readClock(database);
  const report = await verify(database, {
    graceSeconds: GRACE_SECONDS,
    scope: scopeOf(scope, sinceLastSeconds),
    examplesMax: FINDINGS_MAX,
    ...(signal === undefined ? {} : { signal }),
  });
  return await inTransaction(database, async (tx) => {
    const seen = seenIn(report);
    if (seen.length > 0) await keepFindings(tx, seen);
    if (scope === "full") await clearUnseen(tx, { invariants: seenWhole(report), before: now });
    const invariants = report.invariants.map((found) => ({
      ...found,
      examples: found.examples.slice(0, EXAMPLES_MAX),
    }));
    const reconciliationId = await insertReconciliation(tx, {
      ...report,
      scope,
      startedAt: now,
      invariants,
    });
    await forgetOldLooks(tx);
    return {
      reconciliationId,
      ok: report.ok,
      violations: report.invariants.reduce((sum, { violations }) => sum + violations, 0),
      pendingBeyondGrace: report.pendingBeyondGrace,
      unacknowledged: await countUnacknowledged(tx),
    };
  });
}

function scopeOf(scope: ReconciliationScope, sinceLastSeconds: number | null): Scope {
  if (scope === "full") return { kind: "full" };
  // A last look in the future says that the clock was set back: nobody knows how much was looked at.
  const isKnown = sinceLastSeconds !== null && sinceLastSeconds >= 0;
  const seconds = (isKnown ? sinceLastSeconds : RECENT_SECONDS_MAX) + OVERLAP_SECONDS;
  return { kind: "recent", seconds: Math.min(seconds, RECENT_SECONDS_MAX) };
}

function seenIn({ invariants }: VerifyReport): Seen[] {
  return invariants.flatMap(({ number, violations, examples }) => {
    const more = violations - examples.length;
    const rest = more === 0 ? [] : [`${more} more rows break it`];
    return [...examples, ...rest].map((what) => ({ invariant: number, what }));
  });
}

/** Of an invariant with more breaks than findings, one that wasn't named may still be broken. */
function seenWhole({ invariants }: VerifyReport): number[] {
  return invariants
    .filter(({ violations, examples }) => violations === examples.length)
    .map(({ number }) => number);
}

export interface AcknowledgeInput {
  readonly findingIds: readonly string[];
  readonly operator: Operator;
  readonly isDryRun: boolean;
}

/**
 * Says of breaks that they are known and why they may stand: they alert no longer, and nothing else changes. All or none.
 *
 * @throws DomainError `finding_not_found`, or `finding_not_acknowledgeable` where one is over or was acknowledged before
 */
export async function acknowledgeFindings(
  database: Database,
  { findingIds, operator, isDryRun }: AcknowledgeInput,
): Promise<Finding[]> {
  return await inTransaction(database, async (tx) => {
    const findings = await lockFindings(tx, findingIds);
    const known = new Set(findings.map(({ findingId }) => findingId));
    const missing = findingIds.filter((id) => !known.has(id));
    if (missing.length > 0) {
      throw new DomainError(
        "finding_not_found",
        `there is no finding ${missing.join(", ")}: remit reconciliation findings names them`,
      );
    }
    const over = findings.filter(
      ({ clearedAt, acknowledgedAt }) => clearedAt !== null || acknowledgedAt !== null,
    );
    if (over.length > 0) {
      const ids = over.map(({ findingId }) => findingId).join(", ");
      throw new DomainError(
        "finding_not_acknowledgeable",
        `nothing was changed: ${ids} is over or acknowledged, which stays`,
      );
    }
    if (isDryRun) return findings;
    await markAcknowledged(tx, { ids: findingIds, operator });
    return await lockFindings(tx, findingIds);
  });
}
