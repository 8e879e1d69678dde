import type { Database } from "../database/database.ts";
import { takeUpPayment as readRecorded } from "../database/supervision-queries.ts";
import type { RecordedPayment } from "../database/supervision-queries.ts";
import { UUID_PATTERN } from "../domain/ids.ts";
import type { PaymentReceipt } from "../workflows/messages.ts";

/** A payment as a new run takes it up: the request that recorded it, and the answer that this got. */
export interface TakenUpPayment {
  readonly recorded: RecordedPayment;
  readonly receipt: PaymentReceipt;
}

/** Reads a recorded payment back; null where there is none. It writes nothing, so it may run any number of times. */
export async function takeUpPayment(
  database: Database,
  paymentId: string,
): Promise<TakenUpPayment | null> {
  // PostgreSQL reads a UUID in any spelling; the run is for the id as it was recorded.
  if (!UUID_PATTERN.test(paymentId)) return null;
  const taken = await readRecorded(database, paymentId);
  if (taken === null) return null;
  const { recorded, status, createdAt, expiresAt } = taken;
  const { requestId } = recorded;
  return {
    recorded,
    receipt: {
      paymentId,
      requestId,
      status,
      createdAt: createdAt.toISOString(),
      ...(expiresAt === null ? {} : { expiresAt: expiresAt.toISOString() }),
    },
  };
}
