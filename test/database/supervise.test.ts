import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { createSupervisorActivities } from "../../src/activities/supervise.ts";
import type { ListRuns, RunsPage } from "../../src/activities/supervise.ts";
import type { LedgerDecision } from "../../src/workflows/messages.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import {
  aPayment,
  createdMessage,
  expectInvariants,
  fundedAccount,
  useDatabase,
} from "../support/database.ts";

const database = useDatabase();

const NO_RUNS: RunsPage = { payments: [], refunds: [], goOnBefore: null };
const LISTS = ["shortRuns", "manualRuns"] as const;

/** Temporal as the supervisor asks it, with what it was asked. */
function supervisorOf(
  runs: Partial<RunsPage> = {},
  {
    isBroken = () => false,
    isAway = false,
    untold = [],
    ...lists
  }: {
    isBroken?: (id: string) => boolean;
    isAway?: boolean;
    untold?: readonly string[];
    shortRuns?: ListRuns;
    manualRuns?: ListRuns;
  } = {},
) {
  const started: string[] = [];
  const told: [string, LedgerDecision][] = [];
  const overdue: string[] = [];
  const start = async (id: string): Promise<boolean> => {
    if (isAway) throw new Error("Temporal is away");
    return await Promise.resolve(started.push(id) > 0);
  };
  const { startMissing } = createSupervisorActivities({
    database: database().app,
    startRelays: async () => await Promise.resolve(1),
    startPayment: async ({ paymentId }) => await start(paymentId),
    startRefund: async ({ refundId }) => await start(refundId),
    markOverdue: async ({ paymentId }) => {
      if (isBroken(paymentId)) throw new Error(`the run of ${paymentId} is broken`);
      overdue.push(paymentId);
      await Promise.resolve();
    },
    startLedgerEntry: async ({ messageId }) => await start(messageId),
    shortRuns: async () => await Promise.resolve({ ...NO_RUNS, ...runs }),
    manualRuns: async () => await Promise.resolve(NO_RUNS),
    ...lists,
    signalDecision: async (workflowId, decision) => {
      if (untold.includes(workflowId)) throw new Error(`the run ${workflowId} can't be told`);
      told.push([workflowId, decision]);
      await Promise.resolve();
    },
  });
  return { startMissing, started, told, overdue };
}

async function made(capture: "automatic" | "manual", ageHours: number): Promise<string> {
  const manual = capture === "manual" ? { capture, expiresInSeconds: 86_400 } : {};
  const input = aPayment({ amountMinor: "1", ...manual });
  await recordPayment(database().app, input);
  await database().admin(
    `SET session_replication_role = replica;
     UPDATE remit.payments SET created_at = now() - interval '${ageHours} hours', updated_at = now() - interval '${ageHours} hours' WHERE id = '${input.paymentId}';
     SET session_replication_role = origin`,
  );
  return input.paymentId;
}

beforeAll(async () => {
  await fundedAccount(database(), "alice", { amountMinor: 100_000n });
  await fundedAccount(database(), "shop", { kind: "merchant" });
});

describe("startMissing", () => {
  test("starts what is late and open, and lets the young ones run", async () => {
    const [late, young, waiting] = [
      await made("automatic", 1),
      await made("automatic", 0),
      await made("manual", 1),
    ];
    const { startMissing, started, overdue } = supervisorOf();
    const summary = await startMissing();
    expect(overdue).toEqual([late]);
    expect(started).toEqual(expect.arrayContaining([late, waiting]));
    expect(started).not.toContain(young);
    expect(summary).toMatchObject({ openPayments: 2, workflowsStarted: 2, messagesTakenUp: 0 });
  });

  test("goes on after the authorization where the last run stopped, and begins again at the end", async () => {
    const before = await made("manual", 1);
    const after = await made("manual", 1);
    const { startMissing, started } = supervisorOf();
    const summary = await startMissing({ after: before });
    expect(started).toContain(after);
    expect(started).not.toContain(before);
    expect(summary.after).toBe("00000000-0000-0000-0000-000000000000");
  });

  test("goes on after what is due where the last run's time was over, and begins again at the end", async () => {
    const before = await made("automatic", 1);
    const after = await made("automatic", 1);
    const { startMissing, started } = supervisorOf();
    const summary = await startMissing({ dueAfter: before });
    expect(started).toContain(after);
    expect(started).not.toContain(before);
    expect([summary.dueAfter, summary.refundsAfter]).toEqual([
      "00000000-0000-0000-0000-000000000000",
      "00000000-0000-0000-0000-000000000000",
    ]);
  });

  test("tells a workflow that still runs how its payment ended, and one whose payment is open nothing", async () => {
    const [ended, open] = [aPayment({ amountMinor: "1" }), aPayment({ amountMinor: "1" })];
    await recordPayment(database().app, ended);
    await recordPayment(database().app, open);
    await applyLedgerEntries(
      database().app,
      await createdMessage(database().admin, ended.paymentId),
    );
    const keyOf = ({ merchant, idempotencyKey: key }: typeof ended) => ({ merchant, key });
    const runs = { payments: [keyOf(ended), keyOf(open)], refunds: [] };
    const { startMissing, told } = supervisorOf(runs);
    expect(await startMissing()).toMatchObject({ runsTold: 1 });
    expect(told).toEqual([
      [
        `payment:default:${ended.idempotencyKey}`,
        { status: "settled", failureCode: null, messageId: null },
      ],
    ]);
  });

  test("a run whose payment or refund PostgreSQL has forgotten is told to look for itself", async () => {
    const open = aPayment({ amountMinor: "1" });
    await recordPayment(database().app, open);
    const { merchant, idempotencyKey } = open;
    const forgotten = { merchant: "default", key: `forgotten-${open.paymentId}` };
    const { startMissing, told } = supervisorOf({
      payments: [{ merchant, key: idempotencyKey }, forgotten],
      refunds: [forgotten],
    });
    expect(await startMissing()).toMatchObject({ runsTold: 2, runsLost: 2, failed: 0 });
    const look = { status: "failed", failureCode: null, messageId: null };
    expect(told).toHaveLength(2);
    expect(told).toEqual(
      expect.arrayContaining([
        [`payment:default:${forgotten.key}`, look],
        [`refund:default:${forgotten.key}`, look],
      ]),
    );
  });

  test("a manual payment's run that PostgreSQL has forgotten is told to look, one that waits rightly is left alone", async () => {
    const waiting = aPayment({ amountMinor: "1", capture: "manual", expiresInSeconds: 86_400 });
    await recordPayment(database().app, waiting);
    const { merchant, idempotencyKey } = waiting;
    const [stuck, lost] = ["stuck", "lost"].map((name) => `${name}-${waiting.paymentId}`);
    const keys = [idempotencyKey, stuck, lost].map((key) => ({ merchant, key: key ?? "" }));
    const { startMissing, told } = supervisorOf(undefined, {
      manualRuns: async () => await Promise.resolve({ ...NO_RUNS, payments: keys }),
      untold: [`payment:default:${stuck}`],
    });
    const summary = await startMissing();
    expect(summary).toMatchObject({ runsTold: 1, runsLost: 1, failed: 1, manualRunsBefore: null });
    const look = { status: "failed", failureCode: null, messageId: null };
    expect(told).toEqual([[`payment:default:${lost}`, look]]);
  });

  test("a run that can't be told how it ended, or that it is forgotten, keeps the word from nobody else", async () => {
    const ended = [aPayment({ amountMinor: "1" }), aPayment({ amountMinor: "1" })];
    for (const payment of ended) {
      await recordPayment(database().app, payment);
      const message = await createdMessage(database().admin, payment.paymentId);
      await applyLedgerEntries(database().app, message);
    }
    const keys = ended.map(({ merchant, idempotencyKey: key }) => ({ merchant, key }));
    const forgotten = ["lost-1", "lost-2"].map((key) => ({ merchant: "default", key }));
    const [stuck, other] = keys.map(({ key }) => `payment:default:${key}`);
    // More than the failures in a row that would make it fail as a whole.
    const full = Array.from({ length: 12 }, (_, index) => `full-${index}`);
    const { startMissing, told } = supervisorOf(
      {
        payments: [...full.map((key) => ({ merchant: "default", key })), ...forgotten, ...keys],
      },
      { untold: [stuck ?? "", ...full.map((key) => `payment:default:${key}`)] },
    );
    expect(await startMissing()).toMatchObject({ runsTold: 3, runsLost: 2, failed: 13 });
    const ids = [other ?? "", "payment:default:lost-1", "payment:default:lost-2"];
    expect(told.map(([workflowId]) => workflowId).toSorted()).toEqual(ids.toSorted());
  });

  test.each(LISTS)(
    "looks at a page of the %s, goes on where the last run stopped, and begins again at the end",
    async (list) => {
      const asked: { startedBefore: Date; limit: number }[] = [];
      const pages: RunsPage[] = [
        { ...NO_RUNS, goOnBefore: new Date("2026-05-02T00:00:00.123Z") },
        NO_RUNS,
      ];
      const { startMissing } = supervisorOf(undefined, {
        [list]: async (input: { startedBefore: Date; limit: number }) => {
          asked.push(input);
          const page = pages.shift();
          if (page === undefined) throw new Error("Temporal is away");
          return await Promise.resolve(page);
        },
      });
      const beganAt = Date.now();
      const before = `${list}Before` as const;
      const first = await startMissing();
      expect(first[before]).toBe("2026-05-02T00:00:00.123Z");
      const input = { [before]: "2026-05-02T00:00:00.123Z" };
      expect(await startMissing(input)).toMatchObject({ [before]: null, failed: 0 });
      // What could not be looked at is looked at by the next run.
      expect(await startMissing(input)).toMatchObject({ ...input, failed: 1 });
      const [youngest, ...later] = asked.map(({ startedBefore }) => startedBefore);
      expect(youngest?.getTime()).toBeLessThan(beganAt - 20_000);
      const goneOn = new Date("2026-05-02T00:00:00.123Z");
      expect(later).toEqual([goneOn, goneOn]);
      expect(new Set(asked.map(({ limit }) => limit))).toEqual(new Set([2_000]));
    },
  );

  test("one run that can't be helped is counted, and stops the look at nobody else", async () => {
    const [broken, other] = [await made("automatic", 1), await made("automatic", 1)];
    const { startMissing, started, overdue } = supervisorOf(undefined, {
      isBroken: (id) => id === broken,
    });
    const summary = await startMissing();
    expect(summary).toMatchObject({ failed: 1, firstFailure: `the run of ${broken} is broken` });
    expect(started).toEqual(expect.arrayContaining([broken, other]));
    expect(overdue).toContain(other);
  });

  test("what can't be read is counted, and ends no look at anything else", async () => {
    const late = await made("automatic", 1);
    const { startMissing, started, overdue } = supervisorOf();
    await database().admin("REVOKE SELECT ON remit.refunds FROM remit_app");
    const summary = await startMissing({ refundsAfter: late });
    await database().admin("GRANT SELECT ON remit.refunds TO remit_app");
    expect(summary).toMatchObject({
      firstFailure: "SQLSTATE 42501",
      // The next run goes on where this one could not.
      refundsAfter: late,
    });
    expect(summary.failed).toBeGreaterThan(0);
    expect(started).toContain(late);
    expect(overdue).toContain(late);
  });

  test("Temporal away altogether is no matter of single payments: it fails as a whole", async () => {
    for (let count = 0; count < 12; count += 1) await made("automatic", 1);
    const { startMissing } = supervisorOf(undefined, { isAway: true });
    await expect(startMissing()).rejects.toThrow("Temporal is away");
  });

  test("runs that can't be marked, however many, end no look at anything else", async () => {
    const ids: string[] = [];
    for (let count = 0; count < 12; count += 1) ids.push(await made("automatic", 1));
    const ended = aPayment({ amountMinor: "1" });
    await recordPayment(database().app, ended);
    const message = await createdMessage(database().admin, ended.paymentId);
    await applyLedgerEntries(database().app, message);
    const { merchant, idempotencyKey: key } = ended;
    const { startMissing, started } = supervisorOf(
      { payments: [{ merchant, key }], refunds: [] },
      { isBroken: () => true },
    );
    const { failed, overdue, runsTold } = await startMissing();
    expect({ failed, runsTold }).toEqual({ failed: overdue, runsTold: 1 });
    expect(started).toEqual(expect.arrayContaining(ids));
  });

  test("an authorization whose run didn't end it at its time is ended by the supervisor", async () => {
    const stranded = await made("manual", 1);
    await database().admin(
      `SET session_replication_role = replica;
       UPDATE remit.payments SET expires_at = now() - interval '20 minutes' WHERE id = '${stranded}';
       SET session_replication_role = origin`,
    );
    const { startMissing } = supervisorOf();
    expect(await startMissing()).toMatchObject({ expired: 1 });
    expect(await getPayment(database().app, stranded)).toMatchObject({ status: "expired" });
    await expectInvariants(database(), 3_600);
  });
});
