import { v7 as uuidv7 } from "uuid";
import { inTransaction } from "../database/database.ts";
import type { Database, Tx } from "../database/database.ts";
import { lockPayment } from "../database/ledger-queries.ts";
import { readCaptures } from "../database/operation-queries.ts";
import { changePayment } from "../database/change-queries.ts";
import type { PaymentState } from "../domain/decisions.ts";
import { newEvent } from "../domain/events.ts";
import type { OutboxEvent } from "../domain/events.ts";
import { endAuthorization, refuseVoid } from "../domain/operation-decisions.ts";
import type { CaptureState, Remainder } from "../domain/operation-decisions.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import type {
  PaymentStanding,
  RecordResult,
  VoidPaymentInput,
  VoidReceipt,
} from "../workflows/messages.ts";
import { decideOnce } from "./decide-once.ts";
import { eventData } from "./event-data.ts";
import { malformedOperation } from "./malformed.ts";

/**
 * One commit: key + hold given back + payment.voided; where a part was captured, the rest is given back and the payment
 * goes on to be settled. Run twice it answers with the first decision.
 */
export async function voidPayment(
  database: Database,
  input: VoidPaymentInput,
): Promise<RecordResult<VoidReceipt>> {
  const malformed = malformedOperation(input);
  if (malformed !== null) return malformed;
  const { paymentId } = input;
  return await decideOnce<VoidReceipt>(
    database,
    { ...input, operation: "void", partId: null, parameters: { paymentId } },
    {
      decide: async (tx, payment) => {
        const refusal = refuseVoid(payment);
        if (refusal !== null) return refusal;
        const { captures, now } = await readCaptures(tx, paymentId);
        const { traceparent } = input;
        const status = await giveBack(tx, {
          payment,
          captures,
          now,
          traceparent,
          ending: "voided",
        });
        return { paymentId, requestId: input.requestId, status };
      },
      receiptOf: ({ paymentStatus, requestId }) =>
        paymentStatus === null ? null : { paymentId, requestId, status: paymentStatus },
    },
  );
}

/**
 * Ends an authorization whose time is over. Run too early, twice, or after another end it changes nothing and answers
 * how the payment stands. Null where nothing was recorded.
 */
export async function expirePayment(
  database: Database,
  paymentId: string,
): Promise<PaymentStanding | null> {
  return await inTransaction(database, async (tx) => {
    const locked = await lockPayment(tx, paymentId);
    if (locked === null) return null;
    const { payment, failureCode } = locked;
    const { captures, now } = await readCaptures(tx, paymentId);
    const isOver = payment.expiresAt !== null && payment.expiresAt <= now;
    if (payment.status !== "authorized" || !isOver) return { status: payment.status, failureCode };
    // Nobody asked: time ended it.
    const status = await giveBack(tx, {
      payment,
      captures,
      now,
      traceparent: null,
      ending: "expired",
    });
    return { status, failureCode: null };
  });
}

interface AuthorizationEnd {
  readonly payment: PaymentState;
  readonly captures: readonly CaptureState[];
  readonly now: Date;
  readonly traceparent: string | null | undefined;
  readonly ending: "voided" | "expired";
}

/** Writes the end of an authorization that the caller has locked; answers where the payment stands. */
export async function giveBack(tx: Tx, end: AuthorizationEnd): Promise<PaymentStatus> {
  const { payment, captures, ending } = end;
  const remainder = endAuthorization(payment, captures, ending);
  const { paymentId, captured } = payment;
  const { status, held } = remainder;
  await changePayment(tx, { paymentId, status, captured, held }, eventsOf(end, remainder));
  return status;
}

function eventsOf(
  { payment, now, traceparent, ending }: AuthorizationEnd,
  { status, released, lastTransactionId }: Remainder,
): OutboxEvent[] {
  const data = eventData(payment);
  const cause = { time: now, traceparent };
  const first = { messageId: uuidv7(), aggregateVersion: payment.version + 1, ...cause };
  if (status === ending) return [newEvent({ ...first, type: `payment.${ending}`, data })];
  const releasedEvent = newEvent({
    ...first,
    type: "payment.released",
    data: {
      ...data,
      capturedMinor: payment.captured.toString(),
      releasedMinor: released.toString(),
    },
  });
  if (status !== "settled" || lastTransactionId === null) return [releasedEvent];
  const settledEvent = newEvent({
    messageId: uuidv7(),
    type: "payment.settled",
    aggregateVersion: payment.version + 2,
    ...cause,
    data: { ...data, transactionId: lastTransactionId },
  });
  return [releasedEvent, settledEvent];
}
