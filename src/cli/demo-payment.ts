import type { PaymentRequest } from "../client/parameters.ts";
import type { PaymentAnswer } from "../client/payment-client.ts";
import { tracePayment } from "../database/payment-trace.ts";
import type { PaymentTrace } from "../database/payment-trace.ts";
import { formatMajor } from "../domain/money.ts";
import { SETTLE_MS_MAX, topUp } from "./demo-stage.ts";
import type { Stage } from "./demo-stage.ts";
import { claim, eventually } from "./story.ts";

/** What the payment's scene leaves for the next ones. */
export interface PlayedPayment {
  readonly request: PaymentRequest;
  readonly answer: PaymentAnswer;
  readonly messageId: string;
}

/** A payment on its whole way: recorded → published → delivered → booked → settled. */
export async function playPayment(stage: Stage): Promise<PlayedPayment> {
  const { story, payments } = stage;
  await topUp(stage);
  const request: PaymentRequest = {
    key: stage.run,
    from: "alice",
    to: "shop",
    amount: "12.50",
    currency: "EUR",
    description: "the demo payment",
  };
  story.scene(`A payment of 12.50 EUR, alice → shop, key ${stage.run}`);
  const answer = await payments.pay(request);
  claim(!answer.replayed, "a fresh key isn't a replay");
  const { paymentId, workflowUrl } = answer;
  const recordedAtMs = story.elapsedMs();
  story.tell({
    step: "recorded",
    text: `payment ${paymentId}${workflowUrl === null ? "" : `  ${workflowUrl}`}`,
    facts: { paymentId, workflowUrl },
  });
  const end = await payments.waitForEnd(answer, { timeoutMs: SETTLE_MS_MAX });
  const settledAtMs = story.elapsedMs();
  const messageId = await tellTheWay(stage, { answer, recordedAtMs });
  claim(end.status === "settled", `the payment is settled, found ${end.status}`);
  story.tell({
    step: "settled",
    atMs: settledAtMs,
    text: "the payment's workflow has ended",
    facts: { status: end.status },
  });
  return { request, answer, messageId };
}

/** The times between are PostgreSQL's own, so they are as exact as it stores them. */
async function tellTheWay(
  { database, story }: Stage,
  { answer, recordedAtMs }: { answer: PaymentAnswer; recordedAtMs: number },
): Promise<string> {
  const message = await eventually("the message is marked as published and booked", async () => {
    const created = createdMessage(await tracePayment(database, answer.paymentId));
    return created?.publishedAt === null || created?.processedAt === null ? null : created;
  });
  const atMs = (time: Date | null): number =>
    recordedAtMs + Math.max(0, (time?.getTime() ?? 0) - message.createdAt.getTime());
  claim(message.brokerMessageId !== null, "a published row holds the broker's receipt");
  const { messageId, brokerMessageId } = message;
  story.tell({
    step: "published",
    atMs: atMs(message.publishedAt),
    text: `SNS message ${brokerMessageId}`,
    facts: { messageId, brokerMessageId },
  });
  story.tell({
    step: "delivered",
    atMs: atMs(message.receivedAt),
    text: `message ${messageId}, type ${message.type}`,
    facts: { messageId, receivedAt: message.receivedAt },
  });
  const { transactions } = await tracePayment(database, answer.paymentId);
  const [transaction] = transactions;
  claim(transactions.length === 1 && transaction !== undefined, "one ledger transaction");
  if (transaction !== undefined) {
    story.tell({
      step: "booked",
      atMs: atMs(transaction.createdAt),
      text: `ledger transaction ${transaction.transactionId}: ${transaction.entries.map(entryText).join(", ")}`,
      facts: { ...transaction },
    });
  }
  return messageId;
}

type TracedMessage = PaymentTrace["messages"][number];
type TracedEntry = PaymentTrace["transactions"][number]["entries"][number];

function createdMessage({ messages }: PaymentTrace): TracedMessage | undefined {
  return messages.find(({ type }) => type === "payment.created");
}

function entryText({ accountId, direction, amountMinor, balanceAfterMinor }: TracedEntry): string {
  const before = balanceAfterMinor + (direction === "debit" ? amountMinor : -amountMinor);
  return `${accountId} ${formatMajor(before, "EUR")} → ${formatMajor(balanceAfterMinor, "EUR")}`;
}
