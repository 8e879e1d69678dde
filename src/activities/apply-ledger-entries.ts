import { v7 as uuidv7 } from "uuid";
import { inTransaction } from "../database/database.ts";
import type { Database, Tx } from "../database/database.ts";
import { violatedConstraint } from "../database/database-error.ts";
import {
  bookPayment,
  endPayment,
  readBooking,
  receiveMessage,
  refuseMessage,
} from "../database/ledger-queries.ts";
import type { Message, ReceivedMessage } from "../database/ledger-queries.ts";
import { refuseBooking } from "../domain/decisions.ts";
import type { PaymentState } from "../domain/decisions.ts";
import { paymentCreatedMessage, paymentEvent } from "../domain/events.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import type { LedgerEntryEnd } from "../workflows/messages.ts";

/** The decision about a message and how its payment stands, for the signal to the payment's workflow. */
export interface AppliedMessage extends LedgerEntryEnd {
  readonly payment: {
    readonly merchant: string;
    readonly idempotencyKey: string;
    readonly status: PaymentStatus;
    readonly failureCode: string | null;
  } | null;
}

/** An account may close between the decision and the posting: the second look then refuses. Twice can't be by chance. */
const DECISIONS_MAX = 2;
const CLOSED_MEANWHILE = "ledger_entries_account_open_check";

/**
 * One commit: inbox row + entries + hold → posted + payment settled + outbox row; or, where a rule of business speaks
 * against it, inbox row with the error + hold released + payment failed + outbox row, and no entries.
 *
 * Run twice, it writes nothing and answers with what was decided; also after the inbox row was purged, when the unique
 * message id of the ledger transaction stands in for it.
 */
export async function applyLedgerEntries(
  database: Database,
  message: Message,
): Promise<AppliedMessage> {
  const parsed = paymentCreatedMessage.safeParse(JSON.parse(message.payload));
  const paymentId = parsed.success ? parsed.data.data.paymentId : null;
  for (let decision = 1; ; decision += 1) {
    try {
      return await inTransaction(
        database,
        async (tx) => await applyPayment(tx, message, paymentId),
      );
    } catch (error) {
      if (decision >= DECISIONS_MAX || violatedConstraint(error) !== CLOSED_MEANWHILE) throw error;
    }
  }
}

async function applyPayment(
  tx: Tx,
  message: Message,
  paymentId: string | null,
): Promise<AppliedMessage> {
  const received = await receiveMessage(tx, message, paymentId);
  if (!received.isNew) return await answerAgain(tx, message, paymentId);
  const { payment, source, destination } = received;
  if (payment === null || source === null || destination === null) {
    // No event of ours has this id: nothing is touched, and the inbox keeps what came.
    await refuseMessage(tx, message.messageId, "message_unknown");
    return refused({ error: "message_unknown", payment: null, status: null });
  }
  if (payment.status !== "pending" || payment.capture !== "automatic") {
    const error = `payment_is_${payment.status}`;
    await refuseMessage(tx, message.messageId, error);
    return refused({ error, payment, status: payment.status });
  }
  const refusal = refuseBooking(payment, { source, destination });
  if (refusal !== null) return await fail(tx, { message, payment, received, code: refusal.code });
  return await book(tx, { message, payment, received });
}

async function book(
  tx: Tx,
  {
    message,
    payment,
    received,
  }: { message: Message; payment: PaymentState; received: ReceivedMessage },
): Promise<AppliedMessage> {
  const transactionId = uuidv7();
  const event = paymentEvent({
    messageId: uuidv7(),
    type: "payment.settled",
    aggregateVersion: payment.version + 1,
    time: received.now,
    data: { ...eventData(payment), transactionId },
  });
  await bookPayment(
    tx,
    {
      messageId: message.messageId,
      payment,
      transactionId,
      entryIds: { debit: uuidv7(), credit: uuidv7() },
    },
    event,
  );
  return {
    outcome: "booked",
    repeated: false,
    paymentId: payment.paymentId,
    transactionId,
    error: null,
    payment: hint(payment, { status: "settled", failureCode: null }),
  };
}

async function fail(
  tx: Tx,
  {
    message,
    payment,
    received,
    code,
  }: { message: Message; payment: PaymentState; received: ReceivedMessage; code: string },
): Promise<AppliedMessage> {
  await refuseMessage(tx, message.messageId, code);
  const event = paymentEvent({
    messageId: uuidv7(),
    type: "payment.failed",
    aggregateVersion: payment.version + 1,
    time: received.now,
    data: { ...eventData(payment), failureCode: code },
  });
  await endPayment(
    tx,
    { paymentId: payment.paymentId, status: "failed", failureCode: code },
    event,
  );
  return refused({ error: code, payment, status: "failed" });
}

async function answerAgain(
  tx: Tx,
  { messageId }: Message,
  paymentId: string | null,
): Promise<AppliedMessage> {
  const booking = await readBooking(tx, { messageId, paymentId });
  return {
    outcome: booking.outcome,
    repeated: true,
    paymentId: booking.payment?.paymentId ?? null,
    transactionId: booking.transactionId,
    error: booking.error,
    payment: booking.payment,
  };
}

function refused({
  error,
  payment,
  status,
}: {
  error: string;
  payment: PaymentState | null;
  status: PaymentStatus | null;
}): AppliedMessage {
  return {
    outcome: "refused",
    repeated: false,
    paymentId: payment?.paymentId ?? null,
    transactionId: null,
    error,
    payment:
      payment === null || status === null
        ? null
        : hint(payment, { status, failureCode: status === "failed" ? error : null }),
  };
}

/** The part of every payment event that stays the same for the life of a payment. */
export function eventData(payment: PaymentState): {
  paymentId: string;
  merchant: string;
  idempotencyKey: string;
  source: string;
  destination: string;
  amountMinor: string;
  currency: string;
  capture: "automatic" | "manual";
} {
  return {
    paymentId: payment.paymentId,
    merchant: payment.merchant,
    idempotencyKey: payment.idempotencyKey,
    source: payment.source,
    destination: payment.destination,
    amountMinor: payment.amount.toString(),
    currency: payment.currency,
    capture: payment.capture,
  };
}

function hint(
  { merchant, idempotencyKey }: { merchant: string; idempotencyKey: string },
  decision: { status: PaymentStatus; failureCode: string | null },
): NonNullable<AppliedMessage["payment"]> {
  return { merchant, idempotencyKey, ...decision };
}
