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
  /** The same of its looks at short runs and at those of manual payments, as ISO 8601 start times; from the newest where there is none. */
  readonly shortRunsBefore?: string;
  readonly manualRunsBefore?: string;
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
  readonly shortRunsBefore: string | null;
  readonly manualRunsBefore: string | null;
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
  /** A page of the runs that were started before, the newest first: those of automatic payments and of refunds. */
  readonly shortRuns: ListRuns;
  /** The same of manual payments. */
  readonly manualRuns: ListRuns;
  readonly signalDecision: (workflowId: string, decision: LedgerDecision) => Promise<void>;
}

export type ListRuns = (input: { startedBefore: Date; limit: number }) => Promise<RunsPage>;

/** Whose runs they are. */
export interface RunsPage {
  readonly payments: readonly Key[];
  readonly refunds: readonly Key[];
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
      const { after = FIRST_ID, dueAfter = FIRST_ID, refundsAfter = FIRST_ID } = input;
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
        await walk(attempts, from, async (page) => {
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
      const refunds = await walk(attempts, refundsAfter, async (page) => {
        const late = await lateRefunds(database, page);
        await takeUp(late, startRefund);
        return late.map(({ recorded }) => recorded.refundId);
      });
      const { shortRuns, manualRuns } = dependencies;
      const tell = async (list: ListRuns, before: string | undefined): Promise<Told> =>
        await tellRuns(dependencies, { list, before, attempts });
      const short = await tell(shortRuns, input.shortRunsBefore);
      const manual = await tell(manualRuns, input.manualRunsBefore);
      const { markOverdue } = dependencies;
      await tellEach(overdue, { attempts, withinMs: MARKING_MS_MAX, tell: markOverdue });
      const { failed, firstFailure } = attempts;
      return {
        relays: relays ?? 0,
        openPayments: due.count + waiting.count,
        openRefunds: refunds.count,
        ...tally,
        runsTold: short.told + manual.told,
        runsLost: short.lost + manual.lost,
        failed,
        firstFailure,
        after: waiting.after,
        dueAfter: due.after,
        refundsAfter: refunds.after,
        shortRunsBefore: short.before,
        manualRunsBefore: manual.before,
      };
    },
  };
}

/**
 * Some at a time and within a budget: a run that nobody works on takes a call's whole time to say nothing, and what is
 * told later is only known later. Each look begins elsewhere, so that none is left out for ever.
 */
async function tellEach<Item>(
  items: readonly Item[],
  {
    attempts,
    withinMs,
    tell,
  }: { attempts: Attempts; withinMs: number; tell: (item: Item) => Promise<void> },
): Promise<number> {
  const endsAtMs = Date.now() + withinMs;
  const first = Math.floor(Math.random() * items.length);
  let told = 0;
  await eachInTurn([...items.slice(first), ...items.slice(0, first)], async (item) => {
    if (Date.now() >= endsAtMs) return;
    await attempts.note(async () => {
      await tell(item);
      told += 1;
    });
  });
  return told;
}

/** Of the minute that a run has; the calls that are under way then end within seconds. */
const HINTS_MS_MAX = 5_000;
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
/** Three walks, what is told and what is marked share the time that a run has. */
const WALK_MS_MAX = 10_000;

interface Walk {
  readonly count: number;
  /** Where to go on; the first id again where the end was reached. */
  readonly after: string;
}

/** What can't be read ends this walk, and no other look. */
async function walk(
  attempts: Attempts,
  from: string,
  visit: (page: LatePage) => Promise<readonly string[]>,
): Promise<Walk> {
  const endsAtMs = Date.now() + WALK_MS_MAX;
  let count = 0;
  let after = from;
  for (let page = 0; page < PAGES_MAX && Date.now() < endsAtMs; page += 1) {
    const wanted = { olderThanSeconds: LATE_AFTER_SECONDS, after, limit: PAGE_ROWS };
    const ids = await attempts.make(async () => await visit(wanted));
    if (ids === undefined) break;
    count += ids.length;
    const last = ids.at(-1);
    if (last === undefined || ids.length < PAGE_ROWS) return { count, after: FIRST_ID };
    after = last;
  }
  return { count, after };
}

/** Thousands of authorizations may rightly wait for days: a run of the supervisor looks at so many, and the next one goes on. */
const RUNS_MAX = 2_000;

interface Told {
  readonly told: number;
  readonly lost: number;
  readonly before: string | null;
}

/**
 * A hint is lost where the ledger's workflow is terminated between its commit and the signal; and where PostgreSQL has
 * forgotten what a run recorded (a failover without synchronous replication), no ledger will ever send one: that run would
 * wait, a manual payment's until its expiry, and answer repeats as if the money were held.
 */
async function tellRuns(
  { database, signalDecision }: SupervisionDependencies,
  { list, before, attempts }: { list: ListRuns; before: string | undefined; attempts: Attempts },
): Promise<Told> {
  const found = await attempts.make(async () => {
    // A younger one may be about to record its payment, or to hear of its end.
    const youngest = Date.now() - LATE_AFTER_SECONDS * 1_000;
    const startedBefore = new Date(before ?? youngest);
    const { payments, refunds, goOnBefore } = await list({ startedBefore, limit: RUNS_MAX });
    const ended = [
      ...idsOf(workflowIds.payment, await endedPayments(database, payments)),
      ...idsOf(workflowIds.refund, await endedRefunds(database, refunds)),
    ];
    const lost = [
      ...(await unrecordedKeys(database, payments)).map(workflowIds.payment),
      ...(await unrecordedKeys(database, refunds)).map(workflowIds.refund),
    ];
    return { ended, lost, goOnBefore };
  });
  if (found === undefined) return { told: 0, lost: 0, before: before ?? null };
  const { ended, lost, goOnBefore } = found;
  let lostRuns = 0;
  const hints: Hint[] = [...ended, ...lost.map((workflowId): Hint => [workflowId, LOOK])];
  const told = await tellEach(hints, {
    attempts,
    withinMs: HINTS_MS_MAX,
    tell: async ([workflowId, decision]) => {
      await signalDecision(workflowId, decision);
      if (decision === LOOK) lostRuns += 1;
    },
  });
  return { told, lost: lostRuns, before: goOnBefore?.toISOString() ?? null };
}

type Hint = readonly [workflowId: string, decision: LedgerDecision];

function idsOf(
  idOf: (key: Key) => string,
  ended: readonly (Key & Pick<LedgerDecision, "status" | "failureCode">)[],
): Hint[] {
  return ended.map(({ status, failureCode, ...key }) => [
    idOf(key),
    { status, failureCode, messageId: null },
  ]);
}
