import {
  CancellationScope,
  allHandlersFinished,
  condition,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
} from "@temporalio/workflow";
import { PART_STATUSES } from "../domain/payment.ts";
import type { PartStatus } from "../domain/payment.ts";
import { createAcceptance } from "./acceptance.ts";
import { databaseStep } from "./database-step.ts";
import { SEARCH_KEYS, acceptRefundUpdate, ledgerDecisionSignal } from "./messages.ts";
import type {
  LedgerDecision,
  RecordResult,
  RefundEnd,
  RefundInput,
  RefundReceipt,
} from "./messages.ts";

const recordRefund = databaseStep<RefundInput, RecordResult<RefundReceipt>>(
  "recordRefund",
  "key + refund + hold + outbox row, in one commit",
);

/**
 * One refund, from its request to its booking. It can't be cancelled: what is recorded is booked or refused by the ledger.
 *
 * Run twice (killed, reset, started again by the supervisor) it finds its refund in PostgreSQL and goes on from there.
 */
export async function refund(input: RefundInput): Promise<RefundEnd> {
  return await CancellationScope.nonCancellable(async () => await follow(input));
}

async function follow(input: RefundInput): Promise<RefundEnd> {
  const acceptance = createAcceptance(acceptRefundUpdate);
  let decision: { status: PartStatus; failureCode: string | null } | undefined;
  setHandler(
    ledgerDecisionSignal,
    (news) => {
      decision ??= decisionOf(news);
    },
    { description: "The ledger has booked or refused; a hint, PostgreSQL holds the decision" },
  );
  const { fingerprint, merchant, idempotencyKey, paymentId, requestId } = input;
  const { amountMinor, currency, reason } = input;
  const result = await recordRefund(input);
  const receipt = acceptance.decide(result, {
    fingerprint,
    contradiction: {
      code: "idempotency_key_reused",
      message: `key ${idempotencyKey} of merchant ${merchant} was used for another refund`,
      requestId,
      recorded: { operation: "refund", paymentId, amountMinor, currency, reason },
    },
  });
  if (receipt === null) {
    const failureCode = "code" in result ? result.code : "outcome_unknown";
    setCurrentDetails(`**Refused** (\`${failureCode}\`). No money moved.`);
    if (result.outcome === "expired") return { refundId: null, status: "refused", failureCode };
    upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: "refused" }]);
    await condition(allHandlersFinished);
    return { refundId: null, status: "refused", failureCode };
  }
  setCurrentDetails(
    `Recorded as \`${receipt.refundId}\`: ${receipt.amountMinor} minor units are held, the event is on the way to the ledger.`,
  );
  if (receipt.status === "pending") await condition(() => decision !== undefined);
  await condition(allHandlersFinished);
  const { status, failureCode } = decision ?? { status: receipt.status, failureCode: null };
  setCurrentDetails(
    `**${status}**: refund \`${receipt.refundId}\` of payment \`${paymentId}\`${failureCode === null ? "" : ` (\`${failureCode}\`)`}.`,
  );
  if (status !== "settled") upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: status }]);
  return { refundId: receipt.refundId, status, failureCode };
}

/** A signal can be sent by hand: what isn't a decision is no hint. */
function decisionOf(
  news: LedgerDecision | undefined,
): { status: PartStatus; failureCode: string | null } | undefined {
  const status = PART_STATUSES.find((known) => known !== "pending" && known === news?.status);
  return status === undefined ? undefined : { status, failureCode: news?.failureCode ?? null };
}
