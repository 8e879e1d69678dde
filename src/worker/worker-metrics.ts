import { OVERDUE_AFTER_SECONDS } from "../activities/supervise.ts";
import type { Settings } from "../config/settings.ts";
import { packageVersion } from "../config/version.ts";
import { createDatabase } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { readDatabaseFigures } from "../database/metrics-queries.ts";
import type { DatabaseFigures } from "../database/metrics-queries.ts";
import type { OutboxListener } from "../database/outbox-wake-up.ts";
import { createSqsClient } from "../messaging/aws-clients.ts";
import { readQueueDepth } from "../messaging/queue-depths.ts";
import { resultOf } from "../observability/health.ts";
import type { HealthCheck } from "../observability/health.ts";
import { createMetrics } from "../observability/metrics.ts";
import type { Metrics } from "../observability/metrics.ts";
import { createMetricsPage } from "../observability/metrics-page.ts";
import type { MetricsPage, MetricsPart, Sample } from "../observability/metrics-page.ts";
import { HorizonWatch } from "./horizon-watch.ts";
import type { OpenParts } from "./open-parts.ts";

const ASK_TIMEOUT_MS = 5_000;

/** What a worker process tells Prometheus; it comes to have more while it starts. */
export class WorkerMetrics {
  readonly metrics: Metrics = createMetrics();
  readonly #parts: MetricsPart[] = [];
  #pool: Database["pool"] | null = null;
  #listener: Pick<OutboxListener, "isAlive"> | null = null;
  #temporal: (() => Promise<string>) | null = null;

  /** `checks` are those of `/readyz`. */
  page(settings: Settings, checks: () => readonly HealthCheck[]): MetricsPage {
    const { buildId, relayRanges } = settings.worker;
    this.metrics.build.set({ version: packageVersion(), build_id: buildId ?? "" }, 1);
    this.metrics.relayRangesConfigured.set(relayRanges);
    return createMetricsPage({
      metrics: this.metrics,
      refresh: async () => await this.#refresh(checks()),
      parts: () => this.#parts,
      temporal: () => this.#temporal,
    });
  }

  add(part: MetricsPart): void {
    this.#parts.push(part);
  }

  watchPool({ pool }: Database): void {
    this.#pool = pool;
  }

  watchListener(listener: Pick<OutboxListener, "isAlive">): void {
    this.#listener = listener;
  }

  readTemporalFrom(read: (() => Promise<string>) | null): void {
    this.#temporal = read;
  }

  async #refresh(checks: readonly HealthCheck[]): Promise<void> {
    const { poolConnections, poolWaiting, listenAlive, checks: gauge } = this.metrics;
    if (this.#pool !== null) {
      const { totalCount, idleCount, waitingCount } = this.#pool;
      poolConnections.set({ state: "idle" }, idleCount);
      poolConnections.set({ state: "busy" }, totalCount - idleCount);
      poolWaiting.set(waitingCount);
    }
    listenAlive.remove();
    if (this.#listener !== null) listenAlive.set(this.#listener.isAlive() ? 1 : 0);
    await Promise.all(
      checks.map(async (check) => {
        const { ok } = await resultOf(check);
        gauge.set({ check: check.name }, ok ? 1 : 0);
      }),
    );
  }
}

/** Over a connection of its own: a scrape never takes one from a payment. */
export function databasePart({ databaseUrl }: Settings, parts: OpenParts): MetricsPart {
  const database = parts.add(
    "metrics connection",
    createDatabase({ url: databaseUrl, poolMax: 1, applicationName: "remit-metrics" }),
  );
  const watch = new HorizonWatch();
  return {
    name: "database",
    gauges: DATABASE_GAUGES,
    look: async () => {
      const figures = await readDatabaseFigures(database, {
        overdueAfterSeconds: OVERDUE_AFTER_SECONDS,
      });
      return { ...samplesOf(figures), oldest_xmin_held_seconds: watch.heldSeconds(figures) };
    },
  };
}

const DATABASE_GAUGES = {
  outbox_events: { help: "Events that are not published", labels: ["status"] },
  outbox_oldest_pending_age_seconds: {
    help: "Age of the oldest event that is not published; 0 where none waits",
    labels: [],
  },
  payments_open: { help: "Payments that are not at their end", labels: ["status"] },
  payments_stuck: {
    help: "What is open and unchanged for 5 minutes (an authorization: past its expiry)",
    labels: ["kind"],
  },
  oldest_xmin_age_transactions: {
    help: "Transactions since the oldest one that VACUUM must keep rows for",
    labels: ["holder"],
  },
  oldest_xmin_held_seconds: {
    help: "How long this process has seen that same transaction held, at least",
    labels: ["holder"],
  },
  findings_open: {
    help: "Broken rows of an invariant that stand and that nobody has acknowledged",
    labels: ["invariant"],
  },
  reconciliation_finished_timestamp_seconds: {
    help: "When a look at the books last came to its end",
    labels: ["scope"],
  },
  table_dead_tuples: { help: "Dead rows, as PostgreSQL estimates them", labels: ["table"] },
  table_live_tuples: { help: "Live rows, as PostgreSQL estimates them", labels: ["table"] },
  table_bytes: { help: "Size with indexes and TOAST", labels: ["table"] },
} as const;

function samplesOf(
  figures: DatabaseFigures,
): Omit<Record<keyof typeof DATABASE_GAUGES, readonly Sample[]>, "oldest_xmin_held_seconds"> {
  const { pending, dead, oldestPendingAgeSeconds, openPayments, stuck, horizons, tables } = figures;
  const open = { pending: 0, authorized: 0, captured: 0, ...countsOf(openPayments) };
  const ofTables = (value: (table: (typeof tables)[number]) => number): Sample[] =>
    tables.map((one) => ({ labels: { table: one.table }, value: value(one) }));
  return {
    outbox_events: labelled("status", { pending, dead }),
    outbox_oldest_pending_age_seconds: [{ labels: {}, value: oldestPendingAgeSeconds }],
    payments_open: labelled("status", open),
    payments_stuck: labelled("kind", stuck),
    oldest_xmin_age_transactions: horizons.map(({ holder, age }) => ({
      labels: { holder },
      value: age,
    })),
    findings_open: figures.findings.map(({ invariant, count }) => ({
      labels: { invariant: String(invariant) },
      value: count,
    })),
    reconciliation_finished_timestamp_seconds: figures.reconciled.map(({ scope, finishedAt }) => ({
      labels: { scope },
      value: finishedAt,
    })),
    table_dead_tuples: ofTables(({ deadTuples }) => deadTuples),
    table_live_tuples: ofTables(({ liveTuples }) => liveTuples),
    table_bytes: ofTables(({ bytes }) => bytes),
  };
}

function countsOf(
  rows: readonly { readonly status: string; readonly count: number }[],
): Record<string, number> {
  return Object.fromEntries(rows.map(({ status, count }) => [status, count]));
}

function labelled(label: string, values: Readonly<Record<string, number>>): Sample[] {
  return Object.entries(values).map(([name, value]) => ({ labels: { [label]: name }, value }));
}

/** The ledger's queue and its dead letters; SQS tells no age, and a look that received messages would hide them. */
export function queuesPart(
  { aws, ledgerQueueUrl, ledgerDlqUrl }: Settings,
  parts: OpenParts,
): MetricsPart {
  const sqs = createSqsClient(aws, { requestTimeoutMs: ASK_TIMEOUT_MS });
  parts.add("SQS client of metrics", { close: async () => await Promise.resolve(sqs.destroy()) });
  const queues = Object.entries({ ledger: ledgerQueueUrl, dlq: ledgerDlqUrl }).filter(
    ([, url]) => url !== "",
  );
  return {
    name: "queues",
    gauges: {
      queue_messages: { help: "Messages in a queue, as SQS estimates", labels: ["queue", "state"] },
    },
    look: async () => {
      const samples = await Promise.all(
        queues.map(async ([queue, url]) => {
          const { visible, inFlight } = await readQueueDepth(sqs, url);
          return [
            { labels: { queue, state: "visible" }, value: visible },
            { labels: { queue, state: "in_flight" }, value: inFlight },
          ];
        }),
      );
      return { queue_messages: samples.flat() };
    },
  };
}
