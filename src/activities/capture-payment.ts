import { v7 as uuidv7 } from "uuid";
import type { Database, Tx } from "../database/database.ts";
import { readCaptures } from "../database/operation-queries.ts";
import { changePayment, insertCapture } from "../database/change-queries.ts";
import type { PaymentState, Refusal } from "../domain/decisions.ts";
import { newEvent } from "../domain/events.ts";
import { decideCapture } from "../domain/operation-decisions.ts";
import type { CapturePaymentInput, CaptureReceipt, RecordResult } from "../workflows/messages.ts";
import { decideOnce } from "./decide-once.ts";
import { eventData } from "./event-data.ts";
import { malformedOperation } from "./malformed.ts";

/**
 * One commit: key + capture + payment.captured, which the ledger books later; a capture of the rest, or a final one,
 * gives back what is left over at once. Run twice it answers with the first decision.
 */
export async function capturePayment(
  database: Database,
  input: CapturePaymentInput,
): Promise<RecordResult<CaptureReceipt>> {
  const malformed = malformedOperation(input);
  if (malformed !== null) return malformed;
  const { paymentId, amountMinor, currency, final } = input;
  const captureId = uuidv7();
  const messageId = uuidv7();
  return await decideOnce<CaptureReceipt>(
    database,
    {
      ...input,
      operation: "capture",
      partId: captureId,
      parameters: { paymentId, amountMinor, currency, final },
    },
    {
      messageId,
      decide: async (tx, payment) => await capture(tx, { payment, input, captureId, messageId }),
      receiptOf: ({ part, requestId }) =>
        part === null
          ? null
          : {
              captureId: part.id,
              paymentId,
              requestId,
              amountMinor: part.amount.toString(),
              final: part.final,
              status: part.status,
            },
    },
  );
}

async function capture(
  tx: Tx,
  {
    payment,
    input,
    captureId,
    messageId,
  }: {
    payment: PaymentState;
    input: CapturePaymentInput;
    captureId: string;
    messageId: string;
  },
): Promise<CaptureReceipt | Refusal> {
  const { captures, now } = await readCaptures(tx, payment.paymentId);
  const { amountMinor, final } = input;
  const currency = input.currency ?? input.readAs ?? null;
  const decision = decideCapture(
    payment,
    { amount: amountMinor === null ? null : BigInt(amountMinor), currency, final },
    { captures, now },
  );
  if ("code" in decision) return decision;
  const { amount, released } = decision;
  const { paymentId, version } = payment;
  await insertCapture(tx, {
    captureId,
    paymentId,
    idempotencyKey: input.idempotencyKey,
    amount,
    final: decision.final,
  });
  const captured = payment.captured + amount;
  const event = newEvent({
    messageId,
    type: "payment.captured",
    aggregateVersion: version + 1,
    time: now,
    traceparent: input.traceparent,
    data: {
      ...eventData(payment),
      captureId,
      captureAmountMinor: amount.toString(),
      capturedMinor: captured.toString(),
      final: decision.final,
      releasedMinor: released.toString(),
    },
  });
  // No other capture is open, so what a final one leaves in the hold is itself; a partial one is taken out when it is booked.
  const held = decision.final ? amount : payment.amount - payment.captured;
  const status = decision.final ? "captured" : "authorized";
  await changePayment(tx, { paymentId, status, captured, held }, [event]);
  return {
    captureId,
    paymentId,
    requestId: input.requestId,
    amountMinor: amount.toString(),
    final: decision.final,
    status: "pending",
  };
}
