import { v7 as uuidv7 } from "uuid";
import type { Database, Tx } from "../database/database.ts";
import { readCaptures } from "../database/operation-queries.ts";
import { insertRefund } from "../database/change-queries.ts";
import { lockAccount, readAccount } from "../database/record-queries.ts";
import type { PaymentState, Refusal } from "../domain/decisions.ts";
import { DomainError } from "../domain/errors.ts";
import { newEvent } from "../domain/events.ts";
import { bookedAmount, decideRefund } from "../domain/operation-decisions.ts";
import type { RecordResult, RefundInput, RefundReceipt } from "../workflows/messages.ts";
import { decideOnce } from "./decide-once.ts";
import { malformedOperation } from "./malformed.ts";

/**
 * One commit: key + refund + hold on the payment's destination + refund.created, which the ledger books later. Run twice
 * it answers with the first decision.
 */
export async function recordRefund(
  database: Database,
  input: RefundInput,
): Promise<RecordResult<RefundReceipt>> {
  const malformed = malformedOperation(input);
  if (malformed !== null) return malformed;
  const { paymentId, amountMinor, currency, reason, refundId } = input;
  const messageId = uuidv7();
  return await decideOnce<RefundReceipt>(
    database,
    {
      ...input,
      operation: "refund",
      partId: refundId,
      parameters: { paymentId, amountMinor, currency, reason },
    },
    {
      messageId,
      decide: async (tx, payment) => await refund(tx, payment, { ...input, messageId }),
      receiptOf: ({ part, requestId }) =>
        part === null
          ? null
          : {
              refundId: part.id,
              paymentId,
              requestId,
              amountMinor: part.amount.toString(),
              status: part.status,
            },
    },
  );
}

async function refund(
  tx: Tx,
  payment: PaymentState,
  input: RefundInput & { messageId: string },
): Promise<RefundReceipt | Refusal> {
  const { paymentId, currency } = payment;
  const { captures, now } = await readCaptures(tx, paymentId);
  const destination = await lockAccount(tx, payment.destination);
  const source = await readAccount(tx, payment.source);
  if (source === null || destination === null) {
    throw new DomainError("internal", `an account of payment ${paymentId} is gone`);
  }
  const decision = decideRefund(
    payment,
    {
      amount: input.amountMinor === null ? null : BigInt(input.amountMinor),
      currency: input.currency ?? input.readAs ?? null,
    },
    { booked: bookedAmount(payment, captures), source, destination },
  );
  if ("code" in decision) return decision;
  const amountMinor = decision.amount.toString();
  const { refundId, idempotencyKey, merchant, requestId } = input;
  await insertRefund(
    tx,
    {
      refundId,
      paymentId,
      idempotencyKey,
      amount: decision.amount,
      currency,
      reason: input.reason,
      holdId: uuidv7(),
      accountId: payment.destination,
    },
    newEvent({
      messageId: input.messageId,
      type: "refund.created",
      aggregateVersion: 1,
      time: now,
      traceparent: input.traceparent,
      data: {
        refundId,
        paymentId,
        merchant,
        idempotencyKey,
        source: payment.destination,
        destination: payment.source,
        amountMinor,
        currency,
      },
    }),
  );
  return { refundId, paymentId, requestId, amountMinor, status: "pending" };
}
