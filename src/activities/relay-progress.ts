import type { BatchResult } from "./publish-outbox-batch.ts";

/** What one window did; also the heartbeat's details, so that the Web UI shows how the running one stands. */
export interface PublishOutboxSummary {
  readonly published: number;
  readonly failed: number;
  readonly lostLeases: number;
  readonly batches: number;
  /** Why the shard pauses by itself, and since when; null while the broker takes messages. */
  readonly outage: string | null;
  readonly outageSince: string | null;
}

const BACKOFF_BASE_MS = 200;
const BACKOFF_CEILING_MS = 5_000;

/** Gets what a relay does; none of it may throw. */
export interface RelayReport {
  readonly batch: (result: BatchResult) => void;
  /** Once where somebody goes away, not at each try. */
  readonly away: (who: "broker" | "database", reason: string) => void;
  readonly back: (who: "broker" | "database") => void;
}

export const UNREPORTED: RelayReport = {
  batch: () => undefined,
  away: () => undefined,
  back: () => undefined,
};

/** Counts the results of a window and knows whether somebody is away. */
export class RelayProgress {
  readonly #report: RelayReport;
  published = 0;
  #failed = 0;
  #lostLeases = 0;
  #batches = 0;
  #outages = 0;
  #outage: { readonly who: "broker" | "database"; readonly reason: string } | null = null;
  #outageSince: string | null = null;

  constructor(report: RelayReport) {
    this.#report = report;
  }

  get isInOutage(): boolean {
    return this.#outage !== null;
  }

  add(result: BatchResult): void {
    const { published, failures, lostLeases, outage } = result;
    this.#report.batch(result);
    this.published += published;
    this.#failed += failures.length;
    this.#lostLeases += lostLeases;
    this.#batches += 1;
    if (outage !== null) this.addOutage("broker", outage);
    else if (published + failures.length > 0) this.#endOutage();
  }

  addOutage(who: "broker" | "database", reason: string): void {
    this.#outages += 1;
    this.#outageSince ??= new Date().toISOString();
    if (this.#outage?.who !== who) this.#report.away(who, reason);
    this.#outage = { who, reason };
  }

  /** PostgreSQL answered; whether the broker takes messages only a message shows. */
  claimed(): void {
    if (this.#outage?.who === "database") this.#endOutage();
  }

  /** Full jitter above a base, so that several shards don't return to a broker in step. */
  backoffMs(): number {
    const ceiling = Math.min(BACKOFF_BASE_MS * 2 ** this.#outages, BACKOFF_CEILING_MS);
    return BACKOFF_BASE_MS + Math.random() * ceiling;
  }

  summary(): PublishOutboxSummary {
    return {
      published: this.published,
      failed: this.#failed,
      lostLeases: this.#lostLeases,
      batches: this.#batches,
      outage: this.#outage?.reason ?? null,
      outageSince: this.#outageSince,
    };
  }

  #endOutage(): void {
    if (this.#outage !== null) this.#report.back(this.#outage.who);
    this.#outages = 0;
    this.#outage = null;
    this.#outageSince = null;
  }
}
