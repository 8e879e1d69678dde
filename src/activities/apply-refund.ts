import { v7 as uuidv7 } from "uuid";
import type { Tx } from "../database/database.ts";
import { refuseMessage } from "../database/ledger-queries.ts";
import { postTransfer } from "../database/posting-queries.ts";
import { endRefund } from "../database/change-queries.ts";
import { newEvent } from "../domain/events.ts";
import { refusalOf } from "./due-booking.ts";
import type { Applied, DuePart } from "./due-booking.ts";

/** Books a refund from the payment's destination to its source, or gives the reserved amount back where the ledger refuses it. */
export async function applyRefund(tx: Tx, due: DuePart): Promise<Applied> {
  const { messageId, payment, part, source, destination, now, traceparent } = due;
  const { paymentId, merchant, currency } = payment;
  const { idempotencyKey } = part;
  const refusal = refusalOf(due, { debited: destination, credited: source, amount: part.amount });
  const failureCode = refusal?.code ?? null;
  const transactionId = refusal === null ? uuidv7() : null;
  const data = {
    refundId: part.id,
    paymentId,
    merchant,
    idempotencyKey,
    source: payment.destination,
    destination: payment.source,
    amountMinor: part.amount.toString(),
    currency,
  };
  const event = { messageId: uuidv7(), aggregateVersion: 2, time: now, traceparent };
  if (failureCode !== null) await refuseMessage(tx, messageId, failureCode);
  await endRefund(
    tx,
    { refundId: part.id, failureCode },
    failureCode === null
      ? newEvent({
          ...event,
          type: "refund.settled",
          data: { ...data, transactionId: transactionId ?? "" },
        })
      : newEvent({ ...event, type: "refund.failed", data: { ...data, failureCode } }),
  );
  if (transactionId !== null) {
    await postTransfer(tx, {
      transactionId,
      messageId,
      paymentId,
      kind: "refund",
      partId: part.id,
      amount: part.amount,
      currency,
      debited: payment.destination,
      credited: payment.source,
      entryIds: { debit: uuidv7(), credit: uuidv7() },
    });
  }
  const status = failureCode === null ? "settled" : "failed";
  return {
    outcome: failureCode === null ? "booked" : "refused",
    repeated: false,
    paymentId,
    transactionId,
    error: failureCode,
    payment: null,
    refund: { merchant, idempotencyKey, status, failureCode },
  };
}
