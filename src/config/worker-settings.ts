import type { EnvReader } from "./env-reader.ts";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "silent"] as const;

/** How a worker works; names no target, so the environment's hold with a stack, too. */
export interface WorkerSettings {
  /** Into how many ranges the outbox's shards are cut, each with a relay of its own. */
  readonly relayRanges: number;
  readonly databasePoolMax: number;
  readonly pollIntervalMs: number;
  readonly leaseMs: number;
  readonly sendTimeoutMs: number;
  /** Calls to the broker at a time, over all relays of this process. */
  readonly callsInFlightMax: number;
  /** Published and skipped events are kept for so long. */
  readonly outboxRetentionMs: number;
  /** Decided messages are known for so long; what was booked is known for ever by the ledger. */
  readonly inboxRetentionMs: number;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** From the signal to the end; what is still open then is left behind. */
  readonly shutdownGraceMs: number;
  /** Where health probes are answered; null: nowhere, 0: where the kernel chooses. */
  readonly healthPort: number | null;
  readonly healthAddress: string;
  /** The Worker Deployment Version that this worker is of; without a build id it takes part in no versioning. */
  readonly deploymentName: string;
  readonly buildId: string | null;
}

const HOUR_MS = 3_600_000;
/** Up to ten years. */
const HOURS = { min: 1, max: 87_600 };
/** Between the last send that may start and the end of the lease: the mark, twice over. */
const MARK_MARGIN_MS = 2_000;

/** Temporal joins the two with a dot or a colon. */
const DEPLOYMENT_NAME = /^[A-Za-z0-9_-]{1,64}$/;
const BUILD_ID = /^[A-Za-z0-9._-]{1,128}$/;

/** Reads what a worker may be told; problems stay with the reader. */
export function readWorkerSettings(reader: EnvReader): WorkerSettings {
  const settings: WorkerSettings = {
    relayRanges: reader.integer("REMIT_RELAY_SHARDS", { fallback: 1, min: 1, max: 64 }),
    databasePoolMax: reader.integer("REMIT_DATABASE_POOL_MAX", { fallback: 10, min: 2, max: 500 }),
    pollIntervalMs: reader.integer("REMIT_POLL_INTERVAL_MS", {
      fallback: 2_000,
      min: 50,
      max: 60_000,
    }),
    // A kill -9 costs the rest of the lease for the claimed rows and their followers.
    leaseMs: reader.integer("REMIT_LEASE_MS", { fallback: 10_000, min: 3_000, max: 10_000 }),
    sendTimeoutMs: reader.integer("REMIT_SEND_TIMEOUT_MS", {
      fallback: 3_000,
      min: 100,
      max: 9_999,
    }),
    callsInFlightMax: reader.integer("REMIT_RELAY_CALLS_IN_FLIGHT", {
      fallback: 4,
      min: 1,
      max: 64,
    }),
    outboxRetentionMs:
      HOUR_MS * reader.integer("REMIT_OUTBOX_RETENTION_HOURS", { fallback: 168, ...HOURS }),
    inboxRetentionMs:
      HOUR_MS * reader.integer("REMIT_INBOX_RETENTION_HOURS", { fallback: 720, ...HOURS }),
    logLevel: reader.oneOf("REMIT_LOG_LEVEL", { fallback: "info", values: LOG_LEVELS }),
    // Kubernetes sends SIGKILL after 30 s unless told otherwise; ending before it says what was still open.
    shutdownGraceMs: reader.integer("REMIT_SHUTDOWN_GRACE_MS", {
      fallback: 25_000,
      min: 1_000,
      max: 600_000,
    }),
    healthPort: reader.optionalInteger("REMIT_HEALTH_PORT", { min: 0, max: 65_535 }),
    healthAddress: reader.text("REMIT_HEALTH_ADDRESS", { fallback: "127.0.0.1" }),
    deploymentName: reader.text("REMIT_DEPLOYMENT_NAME", { fallback: "remit" }),
    buildId: reader.optional("REMIT_BUILD_ID"),
  };
  if (!DEPLOYMENT_NAME.test(settings.deploymentName)) {
    reader.problem("REMIT_DEPLOYMENT_NAME is not 1 to 64 letters, digits, _ and -");
  }
  if (settings.buildId !== null && !BUILD_ID.test(settings.buildId)) {
    reader.problem("REMIT_BUILD_ID is not 1 to 128 letters, digits, dots, _ and -");
  }
  if (settings.sendTimeoutMs > settings.leaseMs - MARK_MARGIN_MS) {
    reader.problem(
      `REMIT_SEND_TIMEOUT_MS is not ${MARK_MARGIN_MS} less than REMIT_LEASE_MS: a send could outlive its lease`,
    );
  }
  if (settings.outboxRetentionMs > settings.inboxRetentionMs) {
    reader.problem(
      "REMIT_OUTBOX_RETENTION_HOURS is more than REMIT_INBOX_RETENTION_HOURS: an event would be kept whose arrival is forgotten",
    );
  }
  return settings;
}
