import {
  ApplicationFailure,
  CancellationScope,
  allHandlersFinished,
  condition,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import { workflowIds } from "../domain/ids.ts";
import { PART_STATUSES } from "../domain/payment.ts";
import type { PartStanding } from "../activities/payment-activities.ts";
import { createAcceptance, messageIdOf } from "./acceptance.ts";
import { databaseStep, remoteStep } from "./database-step.ts";
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

const readRefund = remoteStep<{ refundId: string }, PartStanding | null>(
  "readRefund",
  "how the refund stands in PostgreSQL",
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
  const hints: Hint[] = [];
  setHandler(
    ledgerDecisionSignal,
    (news) => {
      hints.push(...hintsOf(news));
    },
    { description: "The ledger has booked or refused; a hint, PostgreSQL holds the decision" },
  );
  const { fingerprint, merchant, idempotencyKey, paymentId, requestId } = input ?? {};
  const isSpelled = typeof merchant === "string" && typeof idempotencyKey === "string";
  const id = isSpelled ? workflowIds.refund({ merchant, key: idempotencyKey }) : null;
  if (id !== workflowInfo().workflowId) {
    throw ApplicationFailure.nonRetryable("the id is not of this refund's key", "usage");
  }
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
  const { status, failureCode } =
    receipt.status === "pending"
      ? await untilDecided(receipt, { messageId: messageIdOf(result), hints })
      : { status: receipt.status, failureCode: null };
  await condition(allHandlersFinished);
  setCurrentDetails(
    `**${status}**: refund \`${receipt.refundId}\` of payment \`${paymentId}\`${failureCode === null ? "" : ` (\`${failureCode}\`)`}.`,
  );
  if (status !== "settled") upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: status }]);
  return { refundId: receipt.refundId, status, failureCode };
}

type Hint = PartStanding & { readonly messageId: string | null };

/** A hint that names the message which this run recorded comes from the ledger; at any other PostgreSQL is asked. */
async function untilDecided(
  { refundId }: RefundReceipt,
  { messageId, hints }: { messageId: string | null; hints: Hint[] },
): Promise<PartStanding> {
  for (;;) {
    await condition(() => hints.length > 0);
    const certain = hints.find((hint) => messageId !== null && hint.messageId === messageId);
    if (certain !== undefined) return certain;
    hints.length = 0;
    const standing = await readRefund({ refundId });
    if (standing === null) {
      throw ApplicationFailure.nonRetryable(`refund ${refundId} is gone`, "payment_not_found");
    }
    if (standing.status !== "pending") return standing;
  }
}

/** A signal can be sent by hand: what isn't a decision is no hint. */
function hintsOf(news: LedgerDecision | undefined): Hint[] {
  const status = PART_STATUSES.find((known) => known !== "pending" && known === news?.status);
  if (status === undefined) return [];
  return [{ status, failureCode: news?.failureCode ?? null, messageId: news?.messageId ?? null }];
}
