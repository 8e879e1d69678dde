import { v7 as uuidv7 } from "uuid";
import { inTransaction } from "../database/database.ts";
import type { Database, Tx } from "../database/database.ts";
import { violatedConstraint } from "../database/database-error.ts";
import { readBooking, receiveMessage, refuseMessage } from "../database/ledger-queries.ts";
import { bookPayment } from "../database/posting-queries.ts";
import type { Message, ReceivedMessage } from "../database/ledger-queries.ts";
import { changePayment } from "../database/change-queries.ts";
import type { Refusal } from "../domain/decisions.ts";
import { newEvent } from "../domain/events.ts";
import { applyCapture } from "./apply-capture.ts";
import { applyRefund } from "./apply-refund.ts";
import { refusalOf } from "./due-booking.ts";
import type { Applied, AppliedMessage, Due } from "./due-booking.ts";
import { eventData } from "./event-data.ts";

/** An account may close between the decision and the posting: the second look then refuses. Twice can't be by chance. */
const DECISIONS_MAX = 2;
const CLOSED_MEANWHILE = "ledger_entries_account_open_check";

/**
 * One commit: inbox row + entries + hold → posted + payment (capture, refund) settled + outbox row; or, where a rule of
 * business speaks against it, inbox row with the error + hold released + the end + outbox row, and no entries.
 *
 * Run twice, it writes nothing and answers with what was decided; also after the inbox row was purged, when the unique
 * message id of the ledger transaction stands in for it.
 */
export async function applyLedgerEntries(
  database: Database,
  message: Message,
): Promise<AppliedMessage> {
  for (let decision = 1; ; decision += 1) {
    try {
      return await inTransaction(database, async (tx) => await applyMessage(tx, message, null));
    } catch (error) {
      if (decision >= DECISIONS_MAX || violatedConstraint(error) !== CLOSED_MEANWHILE) throw error;
    }
  }
}

/**
 * Decides, in the caller's transaction, a message that an operator keeps from the ledger: whatever waits for it ends as if
 * the ledger had refused it, and a copy that comes all the same finds it decided. Answers what had been decided before.
 */
export async function refuseSkippedMessage(tx: Tx, message: Message): Promise<AppliedMessage> {
  const refusal: Refusal = { code: "message_skipped", message: "an operator skipped its event" };
  return await applyMessage(tx, message, refusal);
}

async function applyMessage(
  tx: Tx,
  message: Message,
  refusal: Refusal | null,
): Promise<AppliedMessage> {
  const received = await receiveMessage(tx, message);
  if (!received.isNew) return await answerAgain(tx, message);
  const { type, traceparent } = received;
  const applied = await decide(tx, message, { ...received, refusal });
  return { ...applied, event: type === null ? null : { type, traceparent } };
}

async function decide(
  tx: Tx,
  message: Message,
  received: ReceivedMessage & { refusal: Refusal | null },
): Promise<Applied> {
  const { type, payment, part, source, destination, now, traceparent, refusal } = received;
  if (type === null || payment === null || source === null || destination === null) {
    // No event of ours has this id: nothing is touched, and the inbox keeps what came.
    return await refuse(tx, { message, error: "message_unknown", payment: null });
  }
  const { messageId } = message;
  const due = { messageId, payment, source, destination, now, traceparent, refusal };
  if (type === "payment.created") return await applyPayment(tx, message, due);
  if (part === null) return await refuse(tx, { message, error: "message_unknown", payment: null });
  if (part.status !== "pending") {
    const what = type === "refund.created" ? "refund" : "capture";
    return await refuse(tx, { message, error: `${what}_is_${part.status}`, payment });
  }
  const apply = type === "refund.created" ? applyRefund : applyCapture;
  return await apply(tx, { ...due, part });
}

async function applyPayment(tx: Tx, message: Message, due: Due): Promise<Applied> {
  const { payment, source, destination } = due;
  if (payment.status !== "pending" || payment.capture !== "automatic") {
    return await refuse(tx, { message, error: `payment_is_${payment.status}`, payment });
  }
  const { amount } = payment;
  const refusal = refusalOf(due, { debited: source, credited: destination, amount });
  if (refusal !== null) return await fail(tx, due, refusal.code);
  return await book(tx, due);
}

async function book(tx: Tx, { messageId, payment, now, traceparent }: Due): Promise<Applied> {
  const transactionId = uuidv7();
  const event = newEvent({
    messageId: uuidv7(),
    type: "payment.settled",
    aggregateVersion: payment.version + 1,
    time: now,
    traceparent,
    data: { ...eventData(payment), transactionId },
  });
  await bookPayment(
    tx,
    { messageId, payment, transactionId, entryIds: { debit: uuidv7(), credit: uuidv7() } },
    event,
  );
  return {
    outcome: "booked",
    repeated: false,
    paymentId: payment.paymentId,
    transactionId,
    error: null,
    payment: { ...keyOf(payment), status: "settled", failureCode: null },
  };
}

async function fail(
  tx: Tx,
  { messageId, payment, now, traceparent }: Due,
  code: string,
): Promise<Applied> {
  await refuseMessage(tx, messageId, code);
  const { paymentId } = payment;
  const event = newEvent({
    messageId: uuidv7(),
    type: "payment.failed",
    aggregateVersion: payment.version + 1,
    time: now,
    traceparent,
    data: { ...eventData(payment), failureCode: code },
  });
  const change = {
    paymentId,
    status: "failed" as const,
    captured: 0n,
    held: 0n,
    failureCode: code,
  };
  await changePayment(tx, change, [event]);
  return {
    outcome: "refused",
    repeated: false,
    paymentId,
    transactionId: null,
    error: code,
    payment: { ...keyOf(payment), status: "failed", failureCode: code },
  };
}

async function answerAgain(tx: Tx, { messageId }: Message): Promise<AppliedMessage> {
  const booking = await readBooking(tx, messageId);
  return {
    outcome: booking.outcome,
    repeated: true,
    paymentId: booking.payment?.paymentId ?? null,
    transactionId: booking.transactionId,
    error: booking.error,
    event: booking.event,
    payment: booking.refund === null ? booking.payment : null,
    ...(booking.captureId === null ? {} : { captureId: booking.captureId }),
    ...(booking.refund === null ? {} : { refund: booking.refund }),
  };
}

/** Refuses a message that leaves everything as it is. */
async function refuse(
  tx: Tx,
  { message, error, payment }: { message: Message; error: string; payment: Due["payment"] | null },
): Promise<Applied> {
  await refuseMessage(tx, message.messageId, error);
  return {
    outcome: "refused",
    repeated: false,
    paymentId: payment?.paymentId ?? null,
    transactionId: null,
    error,
    payment:
      payment === null ? null : { ...keyOf(payment), status: payment.status, failureCode: null },
  };
}

function keyOf({ merchant, idempotencyKey }: Due["payment"]): {
  merchant: string;
  idempotencyKey: string;
} {
  return { merchant, idempotencyKey };
}
