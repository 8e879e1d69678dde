import {
  CancellationScope,
  allHandlersFinished,
  condition,
  isCancellation,
  setCurrentDetails,
} from "@temporalio/workflow";
import { isTerminal } from "../domain/payment.ts";
import { createAcceptance } from "./acceptance.ts";
import { acceptUpdate } from "./messages.ts";
import type {
  PaymentEnd,
  PaymentInput,
  PaymentReceipt,
  PaymentReference,
  PaymentStanding,
} from "./messages.ts";
import { endOf, standingOf } from "./payment-end.ts";
import { cancelPayment, handleOperations } from "./payment-operations.ts";
import { startPayment } from "./payment-start.ts";

/**
 * One automatic payment, from its request to its end. The main function records; the Update `accept` only compares and
 * waits.
 *
 * Run twice (killed, reset, started again by the supervisor) it finds its payment in PostgreSQL and goes on from the
 * payment's status: terminal → it ends, pending → it waits for the ledger.
 */
export async function payment(input: PaymentInput | PaymentReference): Promise<PaymentEnd> {
  const acceptance = createAcceptance(acceptUpdate);
  let standing: PaymentStanding | undefined;
  const note = (news: PaymentStanding): void => {
    if (isTerminal(news.status)) standing = news;
  };
  handleOperations(acceptance, { onStanding: note, onDecision: note });

  const start = await startPayment(input, acceptance);
  if (start.receipt === null) {
    // Nobody waits any more where nothing was recorded in time, and the update must not be answered.
    if (start.end.failureCode !== "outcome_unknown") await condition(allHandlersFinished);
    return start.end;
  }
  const end = await untilDecided(start.receipt, () => standing);
  await CancellationScope.nonCancellable(async () => await condition(allHandlersFinished));
  return endOf(start.receipt.paymentId, end);
}

/** Waits for the ledger's word; a cancel from outside becomes a cancelled payment, unless the books came first. */
async function untilDecided(
  { paymentId, status }: PaymentReceipt,
  decision: () => PaymentStanding | undefined,
): Promise<PaymentStanding> {
  setCurrentDetails(
    `Recorded as \`${paymentId}\`: the amount is held, its event is on the way to the ledger.`,
  );
  try {
    if (isTerminal(status)) return await standingOf(paymentId);
    await condition(() => decision() !== undefined);
    return decision() ?? (await standingOf(paymentId));
  } catch (error) {
    if (!isCancellation(error)) throw error;
    return await CancellationScope.nonCancellable(async () => {
      const standing = await cancelPayment({ paymentId });
      if (standing === null) throw error;
      return standing;
    });
  }
}
