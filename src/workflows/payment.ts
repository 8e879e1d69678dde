import {
  ApplicationFailure,
  CancellationScope,
  allHandlersFinished,
  condition,
  isCancellation,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { PaymentStanding } from "../activities/cancel-payment.ts";
import type { RecordPaymentResult } from "../activities/record-payment.ts";
import { PAYMENT_STATUSES, isTerminal } from "../domain/payment.ts";
import { databaseStep } from "./database-step.ts";
import { SEARCH_KEYS, acceptUpdate, ledgerDecisionSignal } from "./messages.ts";
import type {
  LedgerDecision,
  PaymentEnd,
  PaymentInput,
  PaymentReceipt,
  RefusalDetails,
} from "./messages.ts";

const recordPayment = databaseStep<PaymentInput, RecordPaymentResult>(
  "recordPayment",
  "key + payment + hold + outbox row, in one commit",
);
const cancelPayment = databaseStep<{ paymentId: string }, PaymentStanding | null>(
  "cancelPayment",
  "release the hold and end the payment, unless it is booked",
);
const readPayment = databaseStep<{ paymentId: string }, PaymentStanding | null>(
  "readPayment",
  "how the payment stands in PostgreSQL",
);

/**
 * One payment, from its request to its end. The main function records; the Update only compares and waits, since an
 * update that no worker has accepted lives in the server's memory alone.
 *
 * Run twice (killed, reset, started again by the supervisor) it finds its payment in PostgreSQL and goes on from the
 * payment's status: terminal → it ends, pending → it waits for the ledger.
 */
export async function payment(input: PaymentInput): Promise<PaymentEnd> {
  let receipt: PaymentReceipt | undefined;
  let refusal: RefusalDetails | undefined;
  let decision: LedgerDecision | undefined;
  let ownsKey = false;

  setHandler(
    ledgerDecisionSignal,
    (news) => {
      if (isDecision(news)) decision = news;
    },
    {
      description:
        "The ledger has booked or refused this payment; a hint, PostgreSQL holds the decision",
    },
  );
  setHandler(
    acceptUpdate,
    async ({ fingerprint }) => {
      await condition(() => receipt !== undefined || refusal !== undefined);
      if (fingerprint !== input.fingerprint) {
        // Only a run whose own request stands behind the key may call another one contradictory.
        throw refused(ownsKey ? contradictionOf(input) : askAgain(input));
      }
      if (receipt === undefined) throw refused(refusal);
      return receipt;
    },
    { description: "Answers with the receipt of the first request that used this key" },
  );

  // A cancel that comes in between is answered by the payment that was recorded, not by leaving it behind.
  const result = await CancellationScope.nonCancellable(async () => await recordPayment(input));
  // Its update stays unanswered: a stored answer would meet every later repeat of this key, a closed run does not.
  if (result.outcome === "expired") {
    setCurrentDetails("Nobody waited for this request any more, so nothing was recorded.");
    return { paymentId: null, status: "refused", failureCode: "outcome_unknown" };
  }
  ownsKey = result.outcome === "refused" || "receipt" in result;
  if (!("receipt" in result)) {
    refusal = result;
    setCurrentDetails(`**Refused**: ${result.message} (\`${result.code}\`). No money moved.`);
    upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: "refused" }]);
    await condition(allHandlersFinished);
    return { paymentId: null, status: "refused", failureCode: result.code };
  }

  receipt = result.receipt;
  if (receipt.paymentId !== input.paymentId) {
    upsertSearchAttributes([{ key: SEARCH_KEYS.paymentId, value: receipt.paymentId }]);
  }
  const standing = await untilDecided(receipt, () => decision);
  await CancellationScope.nonCancellable(async () => await condition(allHandlersFinished));
  return end(receipt.paymentId, standing);
}

/** Waits for the ledger's word; a cancel from outside becomes a cancelled payment, unless the books came first. */
async function untilDecided(
  receipt: PaymentReceipt,
  decision: () => LedgerDecision | undefined,
): Promise<PaymentStanding> {
  const { paymentId } = receipt;
  setCurrentDetails(
    `Recorded as \`${paymentId}\`: the amount is held, its event is on the way to the ledger.`,
  );
  try {
    if (isTerminal(receipt.status)) return await standingOf(paymentId);
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

async function standingOf(paymentId: string): Promise<PaymentStanding> {
  const standing = await readPayment({ paymentId });
  if (standing !== null) return standing;
  throw ApplicationFailure.nonRetryable(`payment ${paymentId} is gone`, "payment_not_found");
}

function end(paymentId: string, { status, failureCode }: PaymentStanding): PaymentEnd {
  setCurrentDetails(
    failureCode === null
      ? `**${status}**: payment \`${paymentId}\`.`
      : `**${status}**: payment \`${paymentId}\` (\`${failureCode}\`). The hold was released.`,
  );
  if (status !== "settled") upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: status }]);
  return { paymentId, status, failureCode };
}

/** A signal can be sent by hand: what isn't a decision is no hint. */
function isDecision(news: unknown): news is LedgerDecision {
  if (typeof news !== "object" || news === null) return false;
  const { status } = news as Partial<LedgerDecision>;
  return PAYMENT_STATUSES.some((known) => known === status && isTerminal(known));
}

function askAgain({ idempotencyKey, merchant, requestId }: PaymentInput): RefusalDetails {
  return {
    code: "outcome_unknown",
    message: `another request with key ${idempotencyKey} of merchant ${merchant} was just refused: ask again`,
    requestId,
  };
}

function contradictionOf(input: PaymentInput): RefusalDetails {
  return {
    code: "idempotency_key_reused",
    message: `key ${input.idempotencyKey} of merchant ${input.merchant} was used with other parameters`,
    requestId: input.requestId,
    recorded: {
      merchant: input.merchant,
      idempotencyKey: input.idempotencyKey,
      source: input.source,
      destination: input.destination,
      amountMinor: input.amountMinor,
      currency: input.currency,
      capture: input.capture,
      description: input.description,
    },
  };
}

function refused(details: RefusalDetails | undefined): ApplicationFailure {
  return ApplicationFailure.create({
    type: details?.code ?? "internal",
    message: details?.message ?? `workflow ${workflowInfo().workflowId} has no answer`,
    nonRetryable: true,
    details: [details],
  });
}
