import { Counter, Gauge, Histogram, Registry } from "prom-client";

/**
 * Everything that a worker counts and measures itself; docs/operations.md says what each means and what is normal. A label
 * has a closed set of values: never an id, an account or a merchant, which would make a series each.
 */
export interface Metrics {
  readonly registry: Registry;
  readonly build: Gauge<"version" | "build_id">;
  readonly checks: Gauge<"check">;
  readonly parts: Gauge<"part">;
  readonly partSeconds: Gauge<"part">;
  readonly requests: Counter<"operation" | "outcome">;
  readonly bookings: Counter<"outcome">;
  readonly bookingLatency: Histogram;
  readonly published: Counter;
  readonly publishFailures: Counter;
  readonly publishLatency: Histogram;
  readonly lostLeases: Counter;
  readonly relayOutages: Counter;
  readonly relayRangesActive: Gauge;
  readonly relayRangesConfigured: Gauge;
  readonly listenAlive: Gauge;
  readonly deliveries: Counter<"result">;
  readonly duplicates: Counter<"by">;
  readonly poolConnections: Gauge<"state">;
  readonly poolWaiting: Gauge;
}

export const OPERATIONS = ["pay", "capture", "void", "refund"] as const;
export type Operation = (typeof OPERATIONS)[number];

const OUTCOMES = [
  "recorded",
  "repeated",
  "refused",
  "contradictory",
  "malformed",
  "expired",
] as const;
const DELIVERY_RESULTS = ["started", "repeated", "malformed", "returned"] as const;

/** Seconds. From a LISTEN wake-up's few ms to what only an outage makes of it. */
const LATENCY_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800];

export function createMetrics(): Metrics {
  const registry = new Registry();
  const of = <Labels extends string>(name: string, help: string, labelNames: Labels[]) => ({
    name: `remit_${name}`,
    help,
    labelNames,
    registers: [registry],
  });
  const latency = (name: string, help: string): Histogram =>
    new Histogram({ ...of(name, help, []), buckets: LATENCY_BUCKETS });
  const metrics: Metrics = {
    registry,
    build: new Gauge(of("build_info", "1, with the version that runs", ["version", "build_id"])),
    checks: new Gauge(of("check_ok", "1 where a check of /readyz holds, else 0", ["check"])),
    parts: new Gauge(
      of("scrape_ok", "1 where a part of this page is from now; 0 where it is missing", ["part"]),
    ),
    partSeconds: new Gauge(
      of("scrape_duration_seconds", "How long the newest look at a part took", ["part"]),
    ),
    requests: new Counter(
      of("requests_total", "Requests that were decided, by what they asked for", [
        "operation",
        "outcome",
      ]),
    ),
    bookings: new Counter(of("bookings_total", "Messages that the ledger decided", ["outcome"])),
    bookingLatency: latency(
      "booking_latency_seconds",
      "From an event to its booking or refusal in the ledger",
    ),
    published: new Counter(of("events_published_total", "Events that SNS took", [])),
    publishFailures: new Counter(
      of("events_failed_total", "Attempts that failed by the event's own fault", []),
    ),
    publishLatency: latency(
      "publish_latency_seconds",
      "From an event's insert to the mark with SNS's receipt",
    ),
    lostLeases: new Counter(
      of("relay_lost_leases_total", "Events whose lease another claim took before the mark", []),
    ),
    relayOutages: new Counter(
      of("relay_outages_total", "Batches that the broker didn't take as a whole", []),
    ),
    relayRangesActive: new Gauge(
      of("relay_ranges_active", "Ranges of the outbox that this process publishes now", []),
    ),
    relayRangesConfigured: new Gauge(
      of("relay_ranges_configured", "Ranges that there should be (REMIT_RELAY_SHARDS)", []),
    ),
    listenAlive: new Gauge(of("listen_alive", "1 while commits wake the relay, else 0", [])),
    deliveries: new Counter(
      of("deliveries_total", "Messages that came from the ledger's queue", ["result"]),
    ),
    duplicates: new Counter(
      of("duplicates_absorbed_total", "Messages that came again and changed nothing", ["by"]),
    ),
    poolConnections: new Gauge(
      of("database_pool_connections", "Connections of the pool to PostgreSQL", ["state"]),
    ),
    poolWaiting: new Gauge(
      of("database_pool_waiting", "Statements that wait for a connection of the pool", []),
    ),
  };
  startAtZero(metrics);
  return metrics;
}

/** A series that begins with its first event hides that event from `increase()`. */
function startAtZero({ requests, bookings, deliveries, duplicates }: Metrics): void {
  for (const operation of OPERATIONS) {
    for (const outcome of OUTCOMES) requests.inc({ operation, outcome }, 0);
  }
  for (const outcome of ["booked", "refused", "repeated"]) bookings.inc({ outcome }, 0);
  for (const result of DELIVERY_RESULTS) deliveries.inc({ result }, 0);
  for (const by of ["workflow", "inbox"]) duplicates.inc({ by }, 0);
}
