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
import { goOnInAnotherRun, isRunFull } from "./full-run.ts";
import { endOf, standingOf } from "./payment-end.ts";
import { cancelPayment, handleOperations } from "./payment-operations.ts";
import { startPayment } from "./payment-start.ts";
import type { StartedPayment } from "./payment-start.ts";

/**
 * One automatic payment, from its request to its end. The main function records; the Update `accept` only compares and
 * waits.
 *
 * Run twice (killed, reset, started again by the supervisor) it finds its payment in PostgreSQL and goes on from the
 * payment's status: terminal → it ends, pending → it waits for the ledger (or ends at once where the request says so).
 */
export async function payment(input: PaymentInput | PaymentReference): Promise<PaymentEnd> {
  const acceptance = createAcceptance(acceptUpdate);
  const news: News[] = [];
  handleOperations(acceptance, {
    onStanding: (standing) => news.push({ ...standing, isRead: true, messageId: null }),
    onDecision: (hint) => news.push({ ...hint, isRead: false }),
  });

  const start = await startPayment(input, acceptance);
  if (start.receipt === null) {
    // Nobody waits any more where nothing was recorded in time, and the update must not be answered.
    if (start.end.failureCode !== "outcome_unknown") await condition(allHandlersFinished);
    return start.end;
  }
  if ("fingerprint" in input && input.endsAtReceipt === true && !isCancelled()) {
    await condition(allHandlersFinished);
    return recordedOnly(start.receipt);
  }
  const end = await untilDecided(start, news);
  await CancellationScope.nonCancellable(async () => await condition(allHandlersFinished));
  return endOf(start.receipt.paymentId, end);
}

/** A cancel that came before the receipt is answered as ever: by a cancelled payment, unless the books came first. */
function isCancelled(): boolean {
  return CancellationScope.current().consideredCancelled;
}

/** The ledger books it all the same, and the supervisor gives a run to what is late. */
function recordedOnly({ paymentId, status }: PaymentReceipt): PaymentEnd {
  setCurrentDetails(
    `Recorded as \`${paymentId}\`: the amount is held, its event is on the way to the ledger. This run ends here, as it was asked to: \`remit payment get ${paymentId}\` says how it ended.`,
  );
  return { paymentId, status, failureCode: null };
}

/** How the payment stands, as a handler has read it or as a hint says. */
type News = PaymentStanding & { readonly isRead: boolean; readonly messageId: string | null };

/** Waits for the ledger's word; a cancel from outside becomes a cancelled payment, unless the books came first. */
async function untilDecided(
  { receipt: { paymentId, status }, messageId }: StartedPayment,
  news: News[],
): Promise<PaymentStanding> {
  setCurrentDetails(
    `Recorded as \`${paymentId}\`: the amount is held, its event is on the way to the ledger.`,
  );
  try {
    if (isTerminal(status)) return await standingOf(paymentId);
    for (;;) {
      await condition(() => isRunFull() || news.some((told) => isTerminal(told.status)));
      if (isRunFull()) await goOnInAnotherRun({ paymentId });
      const told = news.splice(0).filter((each) => isTerminal(each.status));
      const certain = told.find(
        (each) => each.isRead || (messageId !== null && each.messageId === messageId),
      );
      if (certain !== undefined) return certain;
      const standing = await standingOf(paymentId);
      if (isTerminal(standing.status)) return standing;
    }
  } catch (error) {
    if (!isCancellation(error)) throw error;
    return await CancellationScope.nonCancellable(async () => {
      const standing = await cancelPayment({ paymentId });
      if (standing === null) throw error;
      return standing;
    });
  }
}
