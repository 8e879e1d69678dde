import type { DatabaseFigures, Horizon } from "../database/metrics-queries.ts";
import type { Sample } from "../observability/metrics-page.ts";

/**
 * Tells from look to look how long one transaction has been held. PostgreSQL shows since when only to who may see others'
 * sessions, and an age in transactions means minutes on one system and days on another.
 */
export class HorizonWatch {
  readonly #now: () => number;
  readonly #since = new Map<Horizon["holder"], { readonly xid: string; readonly atMs: number }>();

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** At least so long; 0 where nothing is held back: an idle database shows one xid for hours, and no transaction since. */
  heldSeconds({ horizons }: Pick<DatabaseFigures, "horizons">): Sample[] {
    const nowMs = this.#now();
    return horizons.map(({ holder, xid, age }) => {
      if (xid === null || age === 0) this.#since.delete(holder);
      else if (this.#since.get(holder)?.xid !== xid) this.#since.set(holder, { xid, atMs: nowMs });
      const sinceMs = this.#since.get(holder)?.atMs ?? nowMs;
      return { labels: { holder }, value: (nowMs - sinceMs) / 1_000 };
    });
  }
}
