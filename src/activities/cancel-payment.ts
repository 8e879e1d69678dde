import { v7 as uuidv7 } from "uuid";
import { inTransaction } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { endPayment, lockPayment } from "../database/ledger-queries.ts";
import { paymentEvent } from "../domain/events.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import { eventData } from "./apply-ledger-entries.ts";

/** How a payment stands after a cancel was tried: `cancelled`, or the end that came before. */
export interface PaymentStanding {
  readonly status: PaymentStatus;
  readonly failureCode: string | null;
}

/**
 * Cancels a pending payment: hold released and payment.cancelled written in one commit. Run twice, or too late, it
 * changes nothing and answers how the payment stands: a booking that came first wins. Null where nothing was recorded.
 */
export async function cancelPayment(
  database: Database,
  paymentId: string,
): Promise<PaymentStanding | null> {
  return await inTransaction(database, async (tx) => {
    const locked = await lockPayment(tx, paymentId);
    if (locked === null) return null;
    const { payment, failureCode, now } = locked;
    if (payment.status !== "pending") return { status: payment.status, failureCode };
    const event = paymentEvent({
      messageId: uuidv7(),
      type: "payment.cancelled",
      aggregateVersion: payment.version + 1,
      time: now,
      data: eventData(payment),
    });
    await endPayment(tx, { paymentId, status: "cancelled", failureCode: null }, event);
    return { status: "cancelled", failureCode: null };
  });
}
