import type {
  CaptureFact,
  OperatorFact,
  PaymentFacts,
  RefundFact,
} from "../database/payment-facts.ts";
import type { MessageTrace, TransactionTrace } from "../database/payment-trace.ts";
import { formatMajor } from "../domain/money.ts";

/** Something that happened to a payment, as a sentence. */
export interface PaymentHappening {
  readonly at: Date;
  readonly step: string;
  readonly text: string;
}

/** What happened, oldest first. Where events were purged, rows that are kept for ever stand in for them. */
export function whatHappened(facts: PaymentFacts): PaymentHappening[] {
  const happenings = [
    recorded(facts),
    ...facts.messages.flatMap((message) => messageHappenings(facts, message)),
    ...facts.operatorActions.map((action) => operated(facts, action)),
    ...purgedHappenings(facts),
  ];
  // Stable: what one commit wrote within a millisecond stays in the order of the events.
  return happenings.toSorted((left, right) => left.at.getTime() - right.at.getTime());
}

function recorded(facts: PaymentFacts): PaymentHappening {
  const { amountMinor, source, createdAt, idempotencyKey } = facts.payment;
  return {
    at: createdAt,
    step: "recorded",
    text: `key ${idempotencyKey}, payment, hold of ${money(facts, amountMinor)} on ${source} and event payment.created, in one commit`,
  };
}

function messageHappenings(facts: PaymentFacts, message: MessageTrace): PaymentHappening[] {
  const happenings: PaymentHappening[] = [];
  const change = changeOf(facts, message);
  if (change !== null) happenings.push({ at: changedAt(facts, message), ...change });
  if (message.publishedAt !== null) {
    happenings.push({ at: message.publishedAt, step: "published", text: publishedText(message) });
  }
  // What an operator skipped never came: the inbox holds the decision for a copy that comes all the same.
  if (message.receivedAt !== null && message.error !== "message_skipped") {
    happenings.push({
      at: message.receivedAt,
      step: "delivered",
      text: `${message.type} came to the ledger, delivered ${times(message.deliveries ?? 1)} until now`,
    });
  }
  const transaction = facts.transactions.find(({ messageId }) => messageId === message.messageId);
  if (transaction !== undefined) happenings.push(booked(facts, transaction, message.deliveries));
  else if (message.outcome === "refused" && message.error !== "message_skipped") {
    happenings.push({
      at: message.processedAt ?? message.createdAt,
      step: "refused",
      text: `the ledger refused ${message.type}: ${message.error ?? "no reason is stored"}; no entry was written`,
    });
  }
  return happenings;
}

/** A booking and the end that it brings are one commit: the end, whose time was taken first, is told after it. */
function changedAt({ transactions }: PaymentFacts, { type, createdAt }: MessageTrace): Date {
  if (!type.endsWith(".settled")) return createdAt;
  const sinceMs = (at: Date): number => at.getTime() - createdAt.getTime();
  const booked = transactions.find(
    ({ createdAt: at }) => sinceMs(at) >= 0 && sinceMs(at) < ONE_COMMIT_MS,
  );
  return booked?.createdAt ?? createdAt;
}

/** A statement takes no longer. */
const ONE_COMMIT_MS = 5_000;

const OPERATIONS: Readonly<Record<string, string>> = {
  "outbox.retry": "has it tried again from the first attempt on",
  "outbox.skip": "skipped it, for ever: what waited for it ends",
  "outbox.republish": "has it sent once more",
  "outbox.republished": "has sent it once more",
  "dlq.redrive": "sends it again from the dead-letter queue",
  "dlq.discard": "took it out of the dead-letter queue",
};

function operated(
  { messages }: PaymentFacts,
  { at, action, actor, reason, messageId }: OperatorFact,
): PaymentHappening {
  const type = messages.find((message) => message.messageId === messageId)?.type ?? messageId;
  return {
    at,
    step: "operator",
    text: `${actor} and ${type}: ${OPERATIONS[action] ?? action} (${reason})`,
  };
}

/** The change of state that an event stands for; null for the first one, which is told as the recording. */
function changeOf(
  facts: PaymentFacts,
  message: MessageTrace,
): { step: string; text: string } | null {
  if (message.aggregateType === "refund") return refundChange(facts, message);
  const { payment } = facts;
  const step = message.type.replace(/^payment\./, "").replaceAll("_", " ");
  switch (message.type) {
    case "payment.created":
      return null;
    case "payment.authorized": {
      const until =
        payment.expiresAt === null ? "" : ` until ${payment.expiresAt.toISOString()} at most`;
      return { step, text: `the hold stands${until}, to be captured or voided` };
    }
    case "payment.captured":
      return { step, text: captureText(facts, captureOf(facts, message)) };
    case "payment.capture_failed": {
      const failed = captureOf(facts, message);
      const amount =
        failed === undefined ? "a capture" : `the capture of ${money(facts, failed.amountMinor)}`;
      return { step, text: `${amount} failed (${failed?.failureCode ?? "?"})` };
    }
    case "payment.settled":
      return {
        step,
        text: `the payment is settled, ${money(facts, payment.capturedMinor)} in all`,
      };
    case "payment.failed":
      return {
        step,
        text: `the payment failed (${payment.failureCode ?? "?"}): ${released(facts)}`,
      };
    case "payment.released":
      return { step, text: "what was not captured is given back to the source" };
    default:
      return { step, text: `the payment is ${step}: ${released(facts)}` };
  }
}

function released({ payment }: PaymentFacts): string {
  return `its hold on ${payment.source} is released and no money moved`;
}

function captureOf({ captures }: PaymentFacts, message: MessageTrace): CaptureFact | undefined {
  return captures.find(({ captureId }) => captureId === message.captureId);
}

function captureText(facts: PaymentFacts, capture: CaptureFact | undefined): string {
  if (capture === undefined) return "a capture is recorded";
  const { captureId, idempotencyKey, amountMinor, final } = capture;
  return `capture ${captureId} of ${money(facts, amountMinor)}${final ? ", the last one," : ""} is recorded, key ${idempotencyKey}`;
}

function refundChange(
  facts: PaymentFacts,
  { type, aggregateId }: MessageTrace,
): { step: string; text: string } {
  const step = type.replace(/^refund\./, "refund ");
  const refund = facts.refunds.find(({ refundId }) => refundId === aggregateId);
  if (refund === undefined) return { step, text: `refund ${aggregateId}` };
  const amount = money(facts, refund.amountMinor);
  const { destination, source } = facts.payment;
  if (type === "refund.created") {
    const reason = refund.reason === null ? "" : ` (${refund.reason})`;
    return {
      step: "refund",
      text: `refund ${refund.refundId} of ${amount} is recorded and held on ${destination}, key ${refund.idempotencyKey}${reason}`,
    };
  }
  if (type === "refund.settled") return { step, text: `${amount} are back with ${source}` };
  return { step, text: refundFailedText(refund, { amount, destination }) };
}

function refundFailedText(
  { failureCode }: RefundFact,
  { amount, destination }: { amount: string; destination: string },
): string {
  return `the refund failed (${failureCode ?? "?"}): ${amount} are free again on ${destination}`;
}

function publishedText({ type, claims, brokerMessageId }: MessageTrace): string {
  const again = claims > 1 ? `, claimed ${times(claims)}, so it may have been sent as often` : "";
  return `${type} was taken by SNS as message ${brokerMessageId ?? "?"}${again}`;
}

function booked(
  facts: PaymentFacts,
  { transactionId, createdAt, entries }: TransactionTrace,
  deliveries: number | null,
): PaymentHappening {
  const once = deliveries !== null && deliveries > 1 ? "once, " : "";
  const { currency } = facts.payment;
  const moves = entries.map(({ accountId, direction, amountMinor, balanceAfterMinor }) => {
    const before = balanceAfterMinor + (direction === "debit" ? amountMinor : -amountMinor);
    return `${accountId} ${formatMajor(before, currency)} → ${formatMajor(balanceAfterMinor, currency)}`;
  });
  return {
    at: createdAt,
    step: "booked",
    text: `${once}by ledger transaction ${transactionId}: ${moves.join(", ")}`,
  };
}

function purgedHappenings(facts: PaymentFacts): PaymentHappening[] {
  const { payment, messages, transactions } = facts;
  const known = new Set(messages.map(({ messageId }) => messageId));
  const happenings = transactions
    .filter(({ messageId }) => !known.has(messageId))
    .map((transaction) => booked(facts, transaction, null));
  const isTold = messages.some(({ type }) => type === "payment.settled");
  if (payment.settledAt !== null && !isTold) {
    const text = `the payment is settled, ${money(facts, payment.capturedMinor)} in all`;
    happenings.push({ at: payment.settledAt, step: "settled", text });
  }
  return happenings;
}

/** An amount in the payment's currency, with its code. */
export function money({ payment }: PaymentFacts, amountMinor: bigint): string {
  return `${formatMajor(amountMinor, payment.currency)} ${payment.currency}`;
}

/** `once`, `twice`, `3 times`. */
export function times(count: number): string {
  if (count === 1) return "once";
  return count === 2 ? "twice" : `${count} times`;
}
