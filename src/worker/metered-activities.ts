import type { LedgerActivities } from "../activities/ledger-activities.ts";
import type { PaymentActivities } from "../activities/payment-activities.ts";
import type { BatchResult } from "../activities/publish-outbox-batch.ts";
import { UNREPORTED } from "../activities/relay-progress.ts";
import type { RelayReport } from "../activities/relay-progress.ts";
import type { RelayActivities } from "../activities/relay-activities.ts";
import type { Metrics, Operation } from "../observability/metrics.ts";

/** Activities as they are, counted from outside: by what they answer. */

export function meteredPayments(
  { requests }: Metrics,
  activities: PaymentActivities,
): PaymentActivities {
  const counted =
    <Input, Result extends { outcome: string }>(
      operation: Operation,
      run: (input: Input) => Promise<Result>,
    ) =>
    async (input: Input): Promise<Result> => {
      const result = await run(input);
      requests.inc({ operation, outcome: result.outcome });
      return result;
    };
  return {
    ...activities,
    recordPayment: counted("pay", activities.recordPayment),
    capturePayment: counted("capture", activities.capturePayment),
    voidPayment: counted("void", activities.voidPayment),
    recordRefund: counted("refund", activities.recordRefund),
  };
}

export function meteredLedger(
  { bookings, bookingLatency, duplicates }: Metrics,
  activities: LedgerActivities,
): LedgerActivities {
  return {
    ...activities,
    async applyLedgerEntries(input) {
      const end = await activities.applyLedgerEntries(input);
      bookings.inc({ outcome: end.repeated ? "repeated" : end.outcome });
      if (end.repeated) duplicates.inc({ by: "inbox" });
      else observeSince(bookingLatency, input.payload);
      return end;
    },
  };
}

/** The event's time is PostgreSQL's and the end is this machine's: their clocks differ by less than the smallest bucket. */
function observeSince(latency: Metrics["bookingLatency"], payload: string): void {
  const document = JSON.parse(payload) as { time?: unknown } | null;
  const time = document?.time;
  const since = typeof time === "string" ? Date.parse(time) : Number.NaN;
  if (Number.isFinite(since)) latency.observe(Math.max(0, Date.now() - since) / 1_000);
}

export function meteredRelay(
  { relayRangesActive }: Metrics,
  activities: RelayActivities,
): RelayActivities {
  return {
    async publishOutbox(input) {
      relayRangesActive.inc();
      try {
        return await activities.publishOutbox(input);
      } finally {
        relayRangesActive.dec();
      }
    },
  };
}

export function countRelay(metrics: Metrics): RelayReport {
  return { ...UNREPORTED, batch: (batch) => countBatch(metrics, batch) };
}

function countBatch(
  { published, publishFailures, publishLatency, lostLeases, relayOutages }: Metrics,
  batch: BatchResult,
): void {
  published.inc(batch.published);
  publishFailures.inc(batch.failures.length);
  lostLeases.inc(batch.lostLeases);
  if (batch.outage !== null) relayOutages.inc();
  for (const { latencySeconds } of batch.marked) publishLatency.observe(latencySeconds);
}
