import pLimit from "p-limit";
import type { Database } from "../database/database.ts";
import {
  endedPayments,
  endedRefunds,
  latePayments,
  lateRefunds,
  unrecordedKeys,
} from "../database/supervision-queries.ts";
import type {
  Key,
  Late,
  LatePage,
  LostMessage,
  RecordedPayment,
  RecordedRefund,
} from "../database/supervision-queries.ts";
import { workflowIds } from "../domain/ids.ts";
import type { LedgerDecision } from "../workflows/messages.ts";
import { Attempts } from "./attempts.ts";
import { expirePayment } from "./end-authorization.ts";

export interface SupervisionInput {
  /** Where the last run's look at waiting authorizations ended. */
  readonly after?: string;
  /** The same of its looks at payments that are due and at refunds, which reach their ends in one run but after a long outage. */
  readonly dueAfter?: string;
  readonly refundsAfter?: string;
  /** The same of its look at the runs of manual payments, as an ISO 8601 start time; from the newest where there is none. */
  readonly runsBefore?: string;
}

export interface SupervisionSummary {
  readonly relays: number;
  readonly openPayments: number;
  readonly openRefunds: number;
  readonly workflowsStarted: number;
  readonly messagesTakenUp: number;
  readonly runsTold: number;
  /** Of these the ones that wait for a payment or refund which PostgreSQL doesn't have; told, each looks and fails. */
  readonly runsLost: number;
  /** Not settled in time; marked in Temporal for who looks there. */
  readonly overdue: number;
  /** Authorizations whose time was over and whose runs didn't end them. */
  readonly expired: number;
  /** What could not be looked at this time, and the first reason; the others were. */
  readonly failed: number;
  readonly firstFailure: string | null;
  /** For the next run. */
  readonly after: string;
  readonly dueAfter: string;
  readonly refundsAfter: string;
  readonly runsBefore: string | null;
}

export interface SupervisionDependencies {
  readonly database: Database;
  /** Starts every relay that doesn't run; answers how many there are. */
  readonly startRelays: () => Promise<number>;
  /** Starts the payment's workflow unless it runs; answers whether it had to. */
  readonly startPayment: (payment: RecordedPayment) => Promise<boolean>;
  /** The same of a refund. */
  readonly startRefund: (refund: RecordedRefund) => Promise<boolean>;
  /** Marks the payment's run as overdue, or replaces one whose tasks keep failing; harmless however often it is called. */
  readonly markOverdue: (payment: RecordedPayment) => Promise<void>;
  /** Starts the booking of a message whose delivery, or whose workflow, was lost; harmless where it still comes. */
  readonly startLedgerEntry: (message: LostMessage) => Promise<boolean>;
  /** Keys of the short workflows that have run for longer than they should. */
  readonly longRuns: (input: { olderThanSeconds: number }) => Promise<LongRuns>;
  /** A page of the manual payments' runs that were started before, the newest first. */
  readonly manualRuns: (input: { startedBefore: Date; limit: number }) => Promise<RunsPage>;
  readonly signalDecision: (workflowId: string, decision: LedgerDecision) => Promise<void>;
}

export interface LongRuns {
  readonly payments: readonly Key[];
  readonly refunds: readonly Key[];
}

export interface RunsPage {
  readonly keys: readonly Key[];
  /** Where the next page begins; null where this one reached the end. */
  readonly goOnBefore: Date | null;
}

export interface SupervisorActivities {
  readonly startMissing: (input?: SupervisionInput) => Promise<SupervisionSummary>;
}

/** Below this age a payment is on its normal way, and a look at Temporal for each would be load for nothing. */
const LATE_AFTER_SECONDS = 30;
/** Minutes after all that normally can hold a payment up (leases, restarts, backoff) are over. */
export const OVERDUE_AFTER_SECONDS = 300;
const PAGE_ROWS = 200;
/** A run looks at so many pages of each kind; the next one goes on. */
const PAGES_MAX = 25;
const FIRST_ID = "00000000-0000-0000-0000-000000000000";

/** Gives a workflow to what should have one, and the ledger's word to whom it got lost for. Run twice, the second time finds nothing. */
export function createSupervisorActivities(
  dependencies: SupervisionDependencies,
): SupervisorActivities {
  const { database, startRelays, startPayment, startRefund } = dependencies;
  return {
    async startMissing(input = {}) {
      const { after = FIRST_ID, dueAfter = FIRST_ID, refundsAfter = FIRST_ID, runsBefore } = input;
      const attempts = new Attempts();
      const tally = { workflowsStarted: 0, messagesTakenUp: 0, overdue: 0, expired: 0 };
      const overdue: RecordedPayment[] = [];
      const relays = await attempts.make(startRelays);
      const takeUp = async <Recorded>(
        late: readonly Late<Recorded>[],
        start: (recorded: Recorded) => Promise<boolean>,
      ): Promise<void> => {
        await eachInTurn(late, async ({ recorded, lost }) => {
          const hasStarted = await attempts.make(async () => await start(recorded));
          if (hasStarted === true) tally.workflowsStarted += 1;
          for (const message of lost) {
            const isTaken = await attempts.make(
              async () => await dependencies.startLedgerEntry(message),
            );
            if (isTaken === true) tally.messagesTakenUp += 1;
          }
        });
      };
      const payments = async (due: boolean, from: string): Promise<Walk> =>
        await walk(from, async (page) => {
          const late = await latePayments(database, {
            ...page,
            due,
            overdueAfterSeconds: OVERDUE_AFTER_SECONDS,
          });
          await takeUp(late, startPayment);
          for (const { recorded, isStranded } of late.filter(({ isOverdue }) => isOverdue)) {
            tally.overdue += 1;
            overdue.push(recorded);
            if (!isStranded || recorded.capture !== "manual") continue;
            const end = await attempts.make(
              async () => await expirePayment(database, recorded.paymentId),
            );
            if (end?.status === "expired") tally.expired += 1;
          }
          return late.map(({ recorded }) => recorded.paymentId);
        });
      const due = await payments(true, dueAfter);
      // Thousands may wait for days, and each costs a call: a run looks at a part of them.
      const waiting = await payments(false, after);
      const refunds = await walk(refundsAfter, async (page) => {
        const late = await lateRefunds(database, page);
        await takeUp(late, startRefund);
        return late.map(({ recorded }) => recorded.refundId);
      });
      const told = await attempts.make(async () => await tellEnded(dependencies));
      const manual = await tellForgotten(dependencies, { attempts, runsBefore });
      await markAll(overdue, { attempts, markOverdue: dependencies.markOverdue });
      const { failed, firstFailure } = attempts;
      return {
        relays: relays ?? 0,
        openPayments: due.count + waiting.count,
        openRefunds: refunds.count,
        ...tally,
        runsTold: (told?.told ?? 0) + manual.lost,
        runsLost: (told?.lost ?? 0) + manual.lost,
        failed,
        firstFailure,
        after: waiting.after,
        dueAfter: due.after,
        refundsAfter: refunds.after,
        runsBefore: manual.runsBefore,
      };
    },
  };
}

/**
 * Last, some at a time and within a budget: a run that nobody works on takes a call's whole time to say nothing, and what
 * is marked later is only shown later. Each run begins elsewhere, so that none is left out for ever.
 */
async function markAll(
  overdue: readonly RecordedPayment[],
  {
    attempts,
    markOverdue,
  }: { attempts: Attempts; markOverdue: SupervisionDependencies["markOverdue"] },
): Promise<void> {
  const endsAtMs = Date.now() + MARKING_MS_MAX;
  const first = Math.floor(Math.random() * overdue.length);
  await eachInTurn([...overdue.slice(first), ...overdue.slice(0, first)], async (payment) => {
    if (Date.now() >= endsAtMs) return;
    await attempts.note(async () => await markOverdue(payment));
  });
}

/** Of the minute that a run has; the calls that are under way then end within seconds. */
const MARKING_MS_MAX = 15_000;

/** Without the message's id nobody believes it, and every run looks for itself. */
const LOOK: LedgerDecision = { status: "failed", failureCode: null, messageId: null };

/** So many calls to Temporal at a time: one after the other, an hour's outage leaves more than a minute's work. */
async function eachInTurn<Item>(
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const inTurn = pLimit(CALLS_AT_A_TIME);
  await Promise.all(items.map(async (item) => await inTurn(async () => await work(item))));
}

const CALLS_AT_A_TIME = 8;
/** Three walks, what is told and what is marked share the minute that a run has. */
const WALK_MS_MAX = 10_000;

interface Walk {
  readonly count: number;
  /** Where to go on; the first id again where the end was reached. */
  readonly after: string;
}

async function walk(
  from: string,
  visit: (page: LatePage) => Promise<readonly string[]>,
): Promise<Walk> {
  const endsAtMs = Date.now() + WALK_MS_MAX;
  let count = 0;
  let after = from;
  for (let page = 0; page < PAGES_MAX && Date.now() < endsAtMs; page += 1) {
    const ids = await visit({ olderThanSeconds: LATE_AFTER_SECONDS, after, limit: PAGE_ROWS });
    count += ids.length;
    const last = ids.at(-1);
    if (last === undefined || ids.length < PAGE_ROWS) return { count, after: FIRST_ID };
    after = last;
  }
  return { count, after };
}

/**
 * A hint is lost where the ledger's workflow is terminated between its commit and the signal; and where PostgreSQL has
 * forgotten what a run recorded (a failover without synchronous replication), no ledger will ever send one.
 */
async function tellEnded({
  database,
  longRuns,
  signalDecision,
}: SupervisionDependencies): Promise<{ told: number; lost: number }> {
  const { payments, refunds } = await longRuns({ olderThanSeconds: LATE_AFTER_SECONDS });
  const ended = payments.length === 0 ? [] : await endedPayments(database, payments);
  const endedParts = refunds.length === 0 ? [] : await endedRefunds(database, refunds);
  for (const { status, failureCode, ...key } of ended) {
    await signalDecision(workflowIds.payment(key), { status, failureCode, messageId: null });
  }
  for (const { status, failureCode, ...key } of endedParts) {
    await signalDecision(workflowIds.refund(key), { status, failureCode, messageId: null });
  }
  const waiting = [
    ...(await unrecordedKeys(database, payments)).map(workflowIds.payment),
    ...(await unrecordedKeys(database, refunds)).map(workflowIds.refund),
  ];
  for (const workflowId of waiting) await signalDecision(workflowId, LOOK);
  return { told: ended.length + endedParts.length + waiting.length, lost: waiting.length };
}

/** Thousands of authorizations may rightly wait for days: a run looks at so many, and the next one goes on. */
const MANUAL_RUNS_MAX = 2_000;

/**
 * The run of a manual payment that PostgreSQL has forgotten would wait until its expiry, and answer repeats as if the money
 * were held.
 */
async function tellForgotten(
  { database, manualRuns, signalDecision }: SupervisionDependencies,
  { attempts, runsBefore = null }: { attempts: Attempts; runsBefore: string | null | undefined },
): Promise<{ lost: number; runsBefore: string | null }> {
  const page = await attempts.make(async () => {
    // A younger one may be about to record its payment.
    const youngest = Date.now() - LATE_AFTER_SECONDS * 1_000;
    const startedBefore = new Date(runsBefore ?? youngest);
    const { keys, goOnBefore } = await manualRuns({ startedBefore, limit: MANUAL_RUNS_MAX });
    return { forgotten: await unrecordedKeys(database, keys), goOnBefore };
  });
  if (page === undefined) return { lost: 0, runsBefore };
  let lost = 0;
  for (const key of page.forgotten) {
    await attempts.make(async () => {
      await signalDecision(workflowIds.payment(key), LOOK);
      lost += 1;
    });
  }
  return { lost, runsBefore: page.goOnBefore?.toISOString() ?? null };
}
