import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@temporalio/client";
import { Pool } from "pg";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { createPaymentClient } from "../src/client/payment-client.ts";
import type { PaymentAnswer, PaymentClient } from "../src/client/payment-client.ts";
import { workflowIds } from "../src/domain/ids.ts";
import { closeTheBooks, fund, payUntilAnswered, untilBooked } from "./accept.ts";
import { closedLoop } from "./load.ts";
import type { Reporter } from "./report.ts";
import { startBenchStack } from "./stack.ts";

const IN_FLIGHT = 12;
const PAYMENTS = 400;
/** Of these the histories are read. */
const HISTORIES = 20;
/** An idle session tells its statistics within ten seconds. */
const STATISTICS_MS = 12_000;
const IDLE_MS = 10_000;

/** What one automatic payment costs from its request to its end: counted, so one run says it. */
export async function runCostSuite(reporter: Reporter): Promise<void> {
  const stack = await startBenchStack();
  const admin = new Pool({ connectionString: stack.settings.adminDatabaseUrl, max: 1 });
  try {
    const { client, close } = await connectTemporal(stack.settings.temporal);
    try {
      const payments = createPaymentClient({ client });
      await fund(payments);
      const statements = await logStatements(admin, join(stack.dataDir, "logs", "postgres.log"));
      const before = await readTables(admin);
      const answers = await payMany(payments);
      statements.stop();
      const after = await readTables(admin);
      reportDatabase(reporter, { statements, before, after });
      await reportTemporal(reporter, { client, admin, answers, way: WHOLE });
      const receipts = await payMany(payments, { endsAtReceipt: true });
      await untilBooked(admin);
      await reportTemporal(reporter, { client, admin, answers: receipts, way: RECEIPT });
      await closeTheBooks(stack.settings.databaseUrl);
    } finally {
      await close();
    }
  } finally {
    await admin.end();
    await stack.close();
  }
}

/** What is measured, and what it may cost. */
interface Way {
  readonly prefix: string;
  readonly events: number;
  readonly tasks: number;
}
const WHOLE: Way = { prefix: "cost.temporal", events: 18, tasks: 3 };
/** The payment's run ends when it is recorded. */
const RECEIPT: Way = { prefix: "cost.receipt_temporal", events: 14, tasks: 2 };

async function payMany(
  payments: PaymentClient,
  { endsAtReceipt = false }: { endsAtReceipt?: boolean } = {},
): Promise<PaymentAnswer[]> {
  const answers: PaymentAnswer[] = [];
  const work = async (): Promise<void> => {
    const answer = await payUntilAnswered(payments, { endsAtReceipt });
    if (!endsAtReceipt) await payments.waitForEnd(answer, { timeoutMs: 60_000 });
    answers.push(answer);
  };
  await closedLoop(work, { inFlight: IN_FLIGHT, count: PAYMENTS });
  return answers;
}

interface StatementLog {
  /** What the payments' statements were, without those that come anyhow as time passes. */
  readonly perPayment: () => number;
  readonly mostFrequent: () => string;
  readonly stop: () => void;
}

/** PostgreSQL itself writes each statement down; each is a round trip, since nothing is sent ahead of an answer. */
async function logStatements(admin: Pool, logFile: string): Promise<StatementLog> {
  await admin.query("ALTER SYSTEM SET log_line_prefix = '%a|'");
  await admin.query("ALTER SYSTEM SET log_statement = 'all'");
  await admin.query("SELECT pg_reload_conf()");
  await delay(1_000);
  const read = (): string[] =>
    readFileSync(logFile, "utf8")
      .split("\n")
      .flatMap(
        (line) => /^remit-worker\|LOG: {2}(?:execute|statement:?) (\S+)/.exec(line)?.[1] ?? [],
      );
  const idleFrom = read().length;
  await delay(IDLE_MS);
  const idlePerMs = (read().length - idleFrom) / IDLE_MS;
  const from = read().length;
  const since = Date.now();
  let counted: string[] = [];
  let idle = 0;
  return {
    stop: () => {
      counted = read().slice(from);
      idle = idlePerMs * (Date.now() - since);
    },
    perPayment: () => (counted.length - idle) / PAYMENTS,
    mostFrequent: () =>
      [...Map.groupBy(counted, (name) => name)]
        .map(([name, all]) => ({ name, each: all.length / PAYMENTS }))
        .toSorted((left, right) => right.each - left.each)
        .slice(0, 8)
        .map(({ name, each }) => `${name.replace(/:$/, "")} ${each.toFixed(2)}`)
        .join(", "),
  };
}

interface Tables {
  readonly inserted: number;
  readonly updated: number;
  readonly bytes: number;
  readonly wal: number;
}

async function readTables(admin: Pool): Promise<Tables> {
  await delay(STATISTICS_MS);
  const { rows } = await admin.query<Tables>(
    `SELECT sum(n_tup_ins)::float8 AS inserted, sum(n_tup_upd)::float8 AS updated,
            sum(pg_total_relation_size(relid))::float8 AS bytes,
            pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS wal
       FROM pg_stat_user_tables
      WHERE schemaname = 'remit'`,
  );
  const [tables] = rows;
  if (tables === undefined) throw new Error("there are no tables");
  return tables;
}

function reportDatabase(
  reporter: Reporter,
  { statements, before, after }: { statements: StatementLog; before: Tables; after: Tables },
): void {
  const each = (of: keyof Tables): number[] => [(after[of] - before[of]) / PAYMENTS];
  reporter.figure({
    name: "cost.statements",
    unit: "a payment",
    rounds: [statements.perPayment()],
    details: { payments: PAYMENTS, inFlight: IN_FLIGHT },
  });
  reporter.note(`  of these: ${statements.mostFrequent()}`);
  reporter.figure({ name: "cost.rows_inserted", unit: "a payment", rounds: each("inserted") });
  reporter.figure({ name: "cost.rows_updated", unit: "a payment", rounds: each("updated") });
  reporter.figure({ name: "cost.table_and_index_bytes", unit: "a payment", rounds: each("bytes") });
  reporter.figure({ name: "cost.wal_bytes", unit: "a payment", rounds: each("wal") });
}

async function reportTemporal(
  reporter: Reporter,
  {
    client,
    admin,
    answers,
    way: { prefix, events, tasks },
  }: { client: Client; admin: Pool; answers: readonly PaymentAnswer[]; way: Way },
): Promise<void> {
  const costs: HistoryCost[] = [];
  for (const { paymentId, workflowId } of answers.slice(-HISTORIES)) {
    const { rows } = await admin.query<{ id: string }>(
      "SELECT id FROM remit.outbox WHERE aggregate_id = $1 AND type = 'payment.created'",
      [paymentId],
    );
    const booking = workflowIds.ledgerEntry(rows[0]?.id ?? "");
    const both = await Promise.all([historyCost(client, workflowId), historyCost(client, booking)]);
    costs.push(sumOf(both));
  }
  const rounds = (of: keyof HistoryCost): number[] => costs.map((cost) => cost[of]);
  reporter.figure({
    name: `${prefix}_events`,
    unit: "a payment",
    rounds: rounds("events"),
    target: { atMost: events },
  });
  reporter.figure({
    name: `${prefix}_workflow_tasks`,
    unit: "a payment",
    rounds: rounds("tasks"),
    target: { atMost: tasks },
  });
  reporter.figure({ name: `${prefix}_actions`, unit: "a payment", rounds: rounds("actions") });
}

/** Of the payment's workflow and its booking's. */
interface HistoryCost {
  readonly events: number;
  readonly tasks: number;
  /** As Temporal Cloud counts them: starts, updates, signals, timers, activities; local ones of one task are one. */
  readonly actions: number;
}

async function historyCost(client: Client, workflowId: string): Promise<HistoryCost> {
  const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
  const all = events ?? [];
  const count = (isMeant: (event: (typeof all)[number]) => unknown): number =>
    all.filter((event) => isMeant(event)).length;
  return {
    events: all.length,
    tasks: count((event) => event.workflowTaskCompletedEventAttributes),
    actions: count(
      (event) =>
        event.workflowExecutionStartedEventAttributes ??
        event.workflowExecutionUpdateAcceptedEventAttributes ??
        event.workflowExecutionSignaledEventAttributes ??
        event.markerRecordedEventAttributes ??
        event.activityTaskScheduledEventAttributes ??
        event.timerStartedEventAttributes,
    ),
  };
}

function sumOf(costs: readonly HistoryCost[]): HistoryCost {
  const sum = (of: keyof HistoryCost): number => costs.reduce((all, cost) => all + cost[of], 0);
  return { events: sum("events"), tasks: sum("tasks"), actions: sum("actions") };
}
