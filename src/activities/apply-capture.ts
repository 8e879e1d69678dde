import { v7 as uuidv7 } from "uuid";
import type { Tx } from "../database/database.ts";
import { refuseMessage } from "../database/ledger-queries.ts";
import { postTransfer } from "../database/posting-queries.ts";
import { readCaptures } from "../database/operation-queries.ts";
import { changePayment, endCapture } from "../database/change-queries.ts";
import { newEvent } from "../domain/events.ts";
import type { OutboxEvent } from "../domain/events.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import { refusalOf } from "./due-booking.ts";
import type { Applied, DuePart } from "./due-booking.ts";
import { eventData } from "./event-data.ts";

/** Books a capture, or gives it back where the ledger refuses it; the last one of a payment settles it. */
export async function applyCapture(tx: Tx, due: DuePart): Promise<Applied> {
  const { payment, part, source, destination } = due;
  const refusal = refusalOf(due, { debited: source, credited: destination, amount: part.amount });
  const end =
    refusal === null ? await bookCapture(tx, due) : await failCapture(tx, due, refusal.code);
  const { merchant, idempotencyKey, paymentId } = payment;
  const { status, transactionId } = end;
  const failureCode = status === "failed" ? (refusal?.code ?? null) : null;
  return {
    outcome: refusal === null ? "booked" : "refused",
    repeated: false,
    paymentId,
    transactionId,
    error: refusal?.code ?? null,
    payment: { merchant, idempotencyKey, status, failureCode },
    captureId: part.id,
  };
}

interface CaptureEnd {
  readonly status: PaymentStatus;
  readonly transactionId: string | null;
}

async function bookCapture(
  tx: Tx,
  { messageId, payment, part, now, traceparent }: DuePart,
): Promise<CaptureEnd> {
  const transactionId = uuidv7();
  const { paymentId, captured } = payment;
  await endCapture(tx, { captureId: part.id, failureCode: null });
  // One capture is open at a time, so with a captured payment's one nothing is left to book.
  const isLast = payment.status === "captured";
  if (isLast) {
    const settled = settledEvent(
      { payment, now, traceparent },
      { version: payment.version + 1, transactionId },
    );
    // The hold goes with the posting below.
    await changePayment(tx, { paymentId, status: "settled", captured, held: part.amount }, [
      settled,
    ]);
  }
  await postTransfer(tx, {
    transactionId,
    messageId,
    paymentId,
    kind: "capture",
    partId: part.id,
    amount: part.amount,
    currency: payment.currency,
    debited: payment.source,
    credited: payment.destination,
    entryIds: { debit: uuidv7(), credit: uuidv7() },
  });
  return { status: isLast ? "settled" : "authorized", transactionId };
}

/** Its amount goes back: to the authorization while that stands, else to the source. */
async function failCapture(tx: Tx, due: DuePart, failureCode: string): Promise<CaptureEnd> {
  const { messageId, payment, part, now, traceparent } = due;
  const { paymentId } = payment;
  await refuseMessage(tx, messageId, failureCode);
  await endCapture(tx, { captureId: part.id, failureCode });
  const captured = payment.captured - part.amount;
  const failed = newEvent({
    messageId: uuidv7(),
    type: "payment.capture_failed",
    aggregateVersion: payment.version + 1,
    time: now,
    traceparent,
    data: {
      ...eventData(payment),
      captureId: part.id,
      captureAmountMinor: part.amount.toString(),
      capturedMinor: captured.toString(),
      failureCode,
    },
  });
  if (payment.status === "authorized") {
    const held = payment.amount - captured;
    await changePayment(tx, { paymentId, status: "authorized", captured, held }, [failed]);
    return { status: "authorized", transactionId: null };
  }
  const status = captured === 0n ? "failed" : "settled";
  const last = await lastEvent(tx, due, { status, failureCode });
  await changePayment(
    tx,
    {
      paymentId,
      status,
      captured,
      held: 0n,
      failureCode: status === "failed" ? failureCode : null,
    },
    [failed, last],
  );
  return { status, transactionId: null };
}

async function lastEvent(
  tx: Tx,
  { payment, now, traceparent }: DuePart,
  { status, failureCode }: { status: "failed" | "settled"; failureCode: string },
): Promise<OutboxEvent> {
  const version = payment.version + 2;
  if (status === "failed") {
    return newEvent({
      messageId: uuidv7(),
      type: "payment.failed",
      aggregateVersion: version,
      time: now,
      traceparent,
      data: { ...eventData(payment), failureCode },
    });
  }
  const { captures } = await readCaptures(tx, payment.paymentId);
  const transactionId = captures.findLast(({ status: of }) => of === "settled")?.transactionId;
  if (typeof transactionId !== "string") throw new Error("a booked capture has no transaction");
  return settledEvent({ payment, now, traceparent }, { version, transactionId });
}

function settledEvent(
  { payment, now, traceparent }: Pick<DuePart, "payment" | "now" | "traceparent">,
  { version, transactionId }: { version: number; transactionId: string },
): OutboxEvent {
  return newEvent({
    messageId: uuidv7(),
    type: "payment.settled",
    aggregateVersion: version,
    time: now,
    traceparent,
    data: { ...eventData(payment), transactionId },
  });
}
