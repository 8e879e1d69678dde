import { randomUUID } from "node:crypto";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { acknowledgeFindings, reconcile } from "../../src/activities/reconcile.ts";
import { verify } from "../../src/database/invariants.ts";
import { listFindings, listReconciliations } from "../../src/database/reconciliation-queries.ts";
import type { Finding } from "../../src/database/reconciliation-queries.ts";
import { aPayment, cloneDatabase, createdMessage, fundedAccount } from "../support/database.ts";
import type { TestDatabase } from "../support/database.ts";

let database: TestDatabase & { drop(): Promise<void> };

beforeEach(async () => {
  database = await cloneDatabase(4);
  await fundedAccount(database, "alice", { amountMinor: 100_000n });
  await fundedAccount(database, "shop", { kind: "merchant" });
  const input = aPayment();
  await recordPayment(database.app, input);
  await applyLedgerEntries(database.app, await createdMessage(database.admin, input.paymentId));
});
afterEach(async () => {
  await database.drop();
});

async function plant(sql: string): Promise<void> {
  await database.admin(
    `SET session_replication_role = replica; ${sql}; SET session_replication_role = origin`,
  );
}

async function drift(minor: number): Promise<void> {
  await plant(`UPDATE remit.accounts SET posted = posted + ${minor} WHERE id = 'shop'`);
}

async function standing(): Promise<Finding[]> {
  return await listFindings(database.app, { isAll: false, limit: 1_000 });
}

const operator = { actor: "anna@ops", reason: "restored from backup, incident 12" };

describe("a reconciliation", () => {
  test.each(["full", "recent"] as const)(
    "%s: of books that are right is kept, and finds nothing",
    async (scope) => {
      expect(await reconcile(database.app, { scope })).toMatchObject({
        ok: true,
        violations: 0,
        unacknowledged: 0,
      });
      const [look] = await listReconciliations(database.app, { limit: 10 });
      expect(look).toMatchObject({ scope, ok: true, pendingBeyondGrace: 0 });
      expect(look?.invariants).toHaveLength(10);
      expect(await standing()).toEqual([]);
    },
  );

  test.each(["full", "recent"] as const)(
    "%s: names each broken row once, however often it looks, and corrects nothing",
    async (scope) => {
      await drift(1);
      const first = await reconcile(database.app, { scope });
      const second = await reconcile(database.app, { scope });
      expect([first.ok, second.violations]).toEqual([false, first.violations]);
      const found = await standing();
      expect(found.map(({ invariant, what }) => [invariant, what])).toEqual(
        expect.arrayContaining([
          [
            2,
            expect.stringMatching(
              /^account shop has posted 1251 at version 1, its last entry says 1250 at 1$/,
            ),
          ],
        ]),
      );
      expect(found).toHaveLength(first.violations);
      expect(found.every(({ firstSeenAt, lastSeenAt }) => lastSeenAt > firstSeenAt)).toBe(true);
      expect((await verify(database.app, { graceSeconds: 60 })).ok).toBe(false);
    },
  );

  test("clears what is mended when it has looked at everything, and not before", async () => {
    await drift(1);
    await reconcile(database.app, { scope: "recent" });
    await drift(-1);
    await reconcile(database.app, { scope: "recent" });
    expect(await standing()).not.toEqual([]);
    await reconcile(database.app, { scope: "full" });
    expect(await standing()).toEqual([]);
    const all = await listFindings(database.app, { isAll: true, limit: 100 });
    expect(all.every(({ clearedAt }) => clearedAt !== null)).toBe(true);
    await drift(1);
    await reconcile(database.app, { scope: "full" });
    expect(await standing()).not.toEqual([]);
  });

  test("of more breaks than it names keeps those that it named before", async () => {
    const many = Array.from(
      { length: 300 },
      (_, index) => `('extra-${String(index).padStart(3, "0")}', 'customer', 'EUR', 7)`,
    );
    await plant(
      `INSERT INTO remit.accounts (id, kind, currency, posted) VALUES ${many.join(", ")}`,
    );
    expect((await reconcile(database.app, { scope: "full" })).violations).toBeGreaterThan(300);
    const named = (await standing()).filter(({ invariant }) => invariant === 2);
    expect(named).toHaveLength(201);
    expect(named.map(({ what }) => what)).toContain("100 more rows break it");
    // Of 299 broken rows 200 are named: that one isn't named any more says nothing about it.
    await plant("DELETE FROM remit.accounts WHERE id = 'extra-000'");
    await reconcile(database.app, { scope: "full" });
    const still = (await standing()).filter(({ invariant }) => invariant === 2);
    expect(still).toEqual(
      expect.arrayContaining(named.map(({ what }) => expect.objectContaining({ what }))),
    );
  });

  test("says so again where more break than were acknowledged", async () => {
    const break_ = async (from: number, to: number): Promise<void> =>
      await plant(
        `INSERT INTO remit.accounts (id, kind, currency, posted)
         SELECT 'extra-' || n, 'customer', 'EUR', 7 FROM generate_series(${from}, ${to}) n`,
      );
    await break_(1, 260);
    await reconcile(database.app, { scope: "full" });
    const findingIds = (await standing()).map(({ findingId }) => findingId);
    await acknowledgeFindings(database.app, { findingIds, operator, isDryRun: false });
    expect(await reconcile(database.app, { scope: "full" })).toMatchObject({ unacknowledged: 0 });
    await break_(261, 261);
    expect((await reconcile(database.app, { scope: "full" })).unacknowledged).toBeGreaterThan(0);
  });

  test("looks at all that may be recent where the clock was set back", async () => {
    await plant(
      `INSERT INTO remit.reconciliations (id, scope, started_at, finished_at, ok, pending_beyond_grace, invariants)
       VALUES (gen_random_uuid(), 'recent', now() + interval '1 hour', now() + interval '1 hour', true, 0, '[]')`,
    );
    await drift(1);
    expect(await reconcile(database.app, { scope: "recent" })).toMatchObject({ ok: false });
  });

  test.each([
    ["full", true],
    ["recent", false],
  ] as const)("a look that was %s, and right: %s, can't be deleted", async (scope, ok) => {
    await database.admin(
      `INSERT INTO remit.reconciliations (id, scope, started_at, ok, pending_beyond_grace, invariants)
         VALUES (gen_random_uuid(), $1, now(), $2, 0, '[]')`,
      [scope, ok],
    );
    await expect(
      database.app.pool.query("DELETE FROM remit.reconciliations"),
    ).rejects.toMatchObject({ constraint: "reconciliations_stay_check" });
  });

  test("that is stopped ends its query in the database", async () => {
    const stopping = new AbortController();
    const blocker = await database.app.pool.connect();
    try {
      const locked = database.admin(
        "BEGIN; LOCK TABLE remit.accounts IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(2); COMMIT",
      );
      const look = reconcile(database.app, { scope: "full", signal: stopping.signal });
      setTimeout(() => stopping.abort(), 500);
      await expect(look).rejects.toMatchObject({ sqlState: "57014" });
      await locked;
      const { rows } = await blocker.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user AND state = 'active' AND pid <> pg_backend_pid()",
      );
      expect(rows).toEqual([]);
    } finally {
      blocker.release();
    }
    expect(await listReconciliations(database.app, { limit: 10 })).toEqual([]);
  });
});

describe("an acknowledged finding", () => {
  async function found(): Promise<string[]> {
    await drift(1);
    await reconcile(database.app, { scope: "full" });
    return (await standing()).map(({ findingId }) => findingId);
  }

  test("stands with who and why, alerts no longer, and a look later leaves it so", async () => {
    const findingIds = await found();
    const findings = await acknowledgeFindings(database.app, {
      findingIds,
      operator,
      isDryRun: false,
    });
    expect(findings.map(({ acknowledgedBy, reason }) => [acknowledgedBy, reason])).toEqual(
      findingIds.map(() => [operator.actor, operator.reason]),
    );
    expect(await reconcile(database.app, { scope: "full" })).toMatchObject({
      ok: false,
      unacknowledged: 0,
    });
  });

  test("hides no growth: a row that breaks otherwise is another finding", async () => {
    const findingIds = await found();
    await acknowledgeFindings(database.app, { findingIds, operator, isDryRun: false });
    await drift(5);
    expect((await reconcile(database.app, { scope: "full" })).unacknowledged).toBeGreaterThan(0);
  });

  test("isn't one after a dry run, nor where another id is wrong", async () => {
    const findingIds = await found();
    await acknowledgeFindings(database.app, { findingIds, operator, isDryRun: true });
    await expect(
      acknowledgeFindings(database.app, {
        findingIds: [...findingIds, randomUUID()],
        operator,
        isDryRun: false,
      }),
    ).rejects.toMatchObject({ code: "finding_not_found" });
    expect((await standing()).every(({ acknowledgedAt }) => acknowledgedAt === null)).toBe(true);
  });

  test("can't be acknowledged again, changed or taken back by the application", async () => {
    const findingIds = await found();
    await acknowledgeFindings(database.app, { findingIds, operator, isDryRun: false });
    await expect(
      acknowledgeFindings(database.app, { findingIds, operator, isDryRun: false }),
    ).rejects.toMatchObject({ code: "finding_not_acknowledgeable" });
    for (const change of [
      "UPDATE remit.findings SET reason = 'other'",
      "UPDATE remit.findings SET acknowledged_at = NULL, acknowledged_by = NULL, reason = NULL",
    ]) {
      await expect(database.app.pool.query(change)).rejects.toMatchObject({
        constraint: "findings_stay_check",
      });
    }
    for (const change of [
      "DELETE FROM remit.findings",
      "UPDATE remit.findings SET what = 'nothing'",
      "UPDATE remit.reconciliations SET ok = true",
    ]) {
      await expect(database.app.pool.query(change)).rejects.toMatchObject({ code: "42501" });
    }
  });
});
