import type { Database } from "../database/database.ts";
import { openPayments } from "../database/supervision-queries.ts";
import type { OpenPayment, RecordedPayment } from "../database/supervision-queries.ts";

export interface SupervisionSummary {
  readonly relays: number;
  readonly openPayments: number;
  readonly paymentsStarted: number;
  readonly messagesTakenUp: number;
}

export interface SupervisionDependencies {
  readonly database: Database;
  /** Starts every relay that doesn't run; answers how many there are. */
  readonly startRelays: () => Promise<number>;
  /** Starts the payment's workflow unless it runs; answers whether it had to. */
  readonly startPayment: (payment: RecordedPayment) => Promise<boolean>;
  /** Starts the booking of a message whose delivery, or whose workflow, was lost; harmless where it still comes. */
  readonly startLedgerEntry: (message: LostMessage) => Promise<void>;
}

type LostMessage = NonNullable<OpenPayment["lost"]>;

export interface SupervisorActivities {
  readonly startMissing: () => Promise<SupervisionSummary>;
}

/** Below this age a payment is on its normal way, and a look at Temporal for each would be load for nothing. */
const LATE_AFTER_SECONDS = 30;
const PAGE_ROWS = 200;
/** A run looks at so many late payments; the next one goes on. */
const PAGES_MAX = 25;
const FIRST_ID = "00000000-0000-0000-0000-000000000000";

/** Gives a workflow to what should have one. Run twice, the second time finds nothing missing. */
export function createSupervisorActivities({
  database,
  startRelays,
  startPayment,
  startLedgerEntry,
}: SupervisionDependencies): SupervisorActivities {
  return {
    async startMissing() {
      const relays = await startRelays();
      let openCount = 0;
      let paymentsStarted = 0;
      let messagesTakenUp = 0;
      let after = FIRST_ID;
      for (let page = 0; page < PAGES_MAX; page += 1) {
        const late = await openPayments(database, {
          olderThanSeconds: LATE_AFTER_SECONDS,
          after,
          limit: PAGE_ROWS,
        });
        for (const { recorded, lost } of late) {
          if (await startPayment(recorded)) paymentsStarted += 1;
          if (lost === null) continue;
          await startLedgerEntry(lost);
          messagesTakenUp += 1;
        }
        openCount += late.length;
        after = late.at(-1)?.recorded.paymentId ?? after;
        if (late.length < PAGE_ROWS) break;
      }
      return { relays, openPayments: openCount, paymentsStarted, messagesTakenUp };
    },
  };
}
