import { v7 as uuidv7 } from "uuid";
import { inTransaction } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { lockPayment } from "../database/ledger-queries.ts";
import { readCaptures } from "../database/operation-queries.ts";
import { changePayment } from "../database/change-queries.ts";
import { newEvent } from "../domain/events.ts";
import type { CancelPaymentInput, PaymentStanding } from "../workflows/messages.ts";
import { giveBack } from "./end-authorization.ts";
import { eventData } from "./event-data.ts";

/** How a payment stands after a cancel was tried: `changed` where this call ended it, else the end that came before. */
export interface CancelledPayment extends PaymentStanding {
  readonly changed: boolean;
}

/**
 * Cancels a payment that isn't booked: pending → cancelled, authorized → voided (or its rest released), hold and event in
 * one commit. Run twice, or too late, it changes nothing: a booking that came first wins. Null where nothing was recorded.
 */
export async function cancelPayment(
  database: Database,
  { paymentId, traceparent }: CancelPaymentInput,
): Promise<CancelledPayment | null> {
  return await inTransaction(database, async (tx) => {
    const locked = await lockPayment(tx, paymentId);
    if (locked === null) return null;
    const { payment, failureCode, now } = locked;
    if (payment.status === "authorized") {
      const { captures } = await readCaptures(tx, paymentId);
      const status = await giveBack(tx, {
        payment,
        captures,
        now,
        traceparent,
        ending: "voided",
      });
      return { status, failureCode: null, changed: true };
    }
    if (payment.status !== "pending") {
      return { status: payment.status, failureCode, changed: false };
    }
    const event = newEvent({
      messageId: uuidv7(),
      type: "payment.cancelled",
      aggregateVersion: payment.version + 1,
      time: now,
      traceparent,
      data: eventData(payment),
    });
    await changePayment(tx, { paymentId, status: "cancelled", captured: 0n, held: 0n }, [event]);
    return { status: "cancelled", failureCode: null, changed: true };
  });
}
