import { GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import type { PaymentRequest } from "../client/parameters.ts";
import type { PaymentAnswer, PaymentClient } from "../client/payment-client.ts";
import type { Settings } from "../config/settings.ts";
import { getAccount } from "../database/account-queries.ts";
import type { AccountView } from "../database/account-queries.ts";
import type { Database } from "../database/database.ts";
import { verify } from "../database/invariants.ts";
import { getMessage } from "../database/outbox-queries.ts";
import { findPaymentByKey } from "../database/payment-queries.ts";
import { tracePayment } from "../database/payment-trace.ts";
import type { PaymentTrace } from "../database/payment-trace.ts";
import { DomainError } from "../domain/errors.ts";
import { DEFAULT_MERCHANT } from "../domain/ids.ts";
import { formatMajor } from "../domain/money.ts";
import { createSnsClient, createSqsClient } from "../messaging/aws-clients.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { claim, eventually } from "./story.ts";
import type { Story } from "./story.ts";
import { verifySummary, verifyText } from "./verify.ts";

/** What every scene needs; `run` makes the keys of this run unique. */
export interface Stage {
  readonly settings: Settings;
  readonly database: Database;
  readonly payments: PaymentClient;
  readonly story: Story;
  readonly run: string;
}

/** What the first scene leaves for the next ones. */
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

const SETTLE_MS_MAX = 60_000;

/** After eighty runs alice's thousand is gone. */
async function topUp({ database, payments, run }: Stage): Promise<void> {
  if ((await accountOf(database, "alice")).availableMinor >= 1_250n) return;
  const answer = await payments.pay({
    key: `${run}-fund`,
    from: "world:EUR",
    to: "alice",
    amount: "1000.00",
    currency: "EUR",
  });
  await payments.waitForEnd(answer, { timeoutMs: SETTLE_MS_MAX });
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

/** The same request with the same key: the first answer, and nothing moves. */
export async function playReplay(stage: Stage, { request, answer }: PlayedPayment): Promise<void> {
  const { story, payments, database } = stage;
  story.scene("The same request again, with the same key");
  const before = await positionOf(database);
  const again = await payments.pay(request);
  claim(again.replayed && again.paymentId === answer.paymentId, "the first answer comes back");
  claim((await positionOf(database)) === before, "no balance has moved");
  story.tell({
    step: "replayed",
    text: `payment ${again.paymentId}, nothing moved`,
    facts: { paymentId: again.paymentId, replayed: again.replayed },
  });
}

/** The same message once more, as SNS and SQS may always deliver it. */
export async function playRedelivery(
  stage: Stage,
  { answer, messageId }: PlayedPayment,
): Promise<void> {
  const { story, database, settings } = stage;
  story.scene("The same message, delivered again");
  const before = await positionOf(database);
  const brokerMessageId = await publishAgain(stage, messageId);
  story.tell({
    step: "published",
    text: `SNS message ${brokerMessageId}, once more`,
    facts: { messageId, brokerMessageId },
  });
  await untilQueueIsEmpty(settings);
  const { transactions } = await tracePayment(database, answer.paymentId);
  claim(transactions.length === 1, `still one ledger transaction, found ${transactions.length}`);
  claim((await positionOf(database)) === before, "no balance has moved");
  story.tell({
    step: "absorbed",
    text: "taken from the queue, still one ledger transaction",
    facts: { transactions: transactions.length },
  });
}

async function publishAgain({ settings, database }: Stage, messageId: string): Promise<string> {
  const message = await getMessage(database, messageId);
  claim(message !== null, `the outbox has message ${messageId}`);
  const sns = createSnsClient(settings.aws, { requestTimeoutMs: settings.worker.sendTimeoutMs });
  try {
    const publisher = createSnsPublisher(sns, settings.topicArn);
    const [result] = message === null ? [] : await publisher.publish([message]);
    if (result?.kind === "accepted") return result.brokerMessageId;
    throw new DomainError("broker_unreachable", `SNS took no message: ${result?.error ?? "?"}`);
  } finally {
    sns.destroy();
  }
}

async function untilQueueIsEmpty({ aws, ledgerQueueUrl }: Settings): Promise<void> {
  const sqs = createSqsClient(aws, { requestTimeoutMs: 3_000 });
  let emptyLooks = 0;
  try {
    await eventually("the ledger's queue is empty", async () => {
      const { Attributes = {} } = await sqs.send(
        new GetQueueAttributesCommand({
          QueueUrl: ledgerQueueUrl,
          AttributeNames: ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        }),
      );
      const isEmpty = Object.values(Attributes).every((count) => count === "0");
      emptyLooks = isEmpty ? emptyLooks + 1 : 0;
      return emptyLooks >= EMPTY_LOOKS ? true : null;
    });
  } catch (error) {
    if (error instanceof DomainError) throw error;
    throw new DomainError("broker_unreachable", "SQS does not answer", { cause: error });
  } finally {
    sqs.destroy();
  }
}

/** SNS hands over to SQS a moment after its ACK, and the counts are approximate: one look may come too early. */
const EMPTY_LOOKS = 4;

/** A payment that alice can't afford: refused, and only its key remains. */
export async function playRefusal({ story, payments, database, run }: Stage): Promise<void> {
  const { availableMinor } = await accountOf(database, "alice");
  const request: PaymentRequest = {
    key: `${run}-too-much`,
    from: "alice",
    to: "shop",
    amountMinor: (availableMinor + 1n).toString(),
    currency: "EUR",
  };
  const amount = formatMajor(availableMinor + 1n, "EUR");
  story.scene(`A payment without funds: ${amount} EUR, alice → shop, key ${request.key}`);
  const before = await positionOf(database);
  const first = await refusalOf(payments, request);
  claim(first.code === "insufficient_funds", `it is refused, found ${first.code}`);
  const payment = await findPaymentByKey(database, {
    merchant: DEFAULT_MERCHANT,
    key: request.key,
  });
  claim(payment === null, "there is no payment");
  claim((await positionOf(database)) === before, "no balance has moved and nothing is held");
  story.tell({ step: "refused", text: first.message, facts: { code: first.code } });
  const second = await refusalOf(payments, request);
  claim(second.code === first.code && second.details["replayed"] === true, "its key remembers");
  story.tell({
    step: "remembered",
    text: "the same key gets the same refusal; there is no payment",
    facts: { code: second.code, replayed: true },
  });
}

async function refusalOf(payments: PaymentClient, request: PaymentRequest): Promise<DomainError> {
  try {
    await payments.pay(request);
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
  throw new DomainError(
    "verify",
    "a claim of the demo doesn't hold: it is refused, found accepted",
  );
}

/** All invariants, as `remit verify` reports them. */
export async function playVerify({ story, database }: Stage): Promise<void> {
  story.scene("remit verify");
  const report = await verify(database, { graceSeconds: 60 });
  claim(report.ok, verifyText(report));
  story.tell({ step: "verified", text: verifySummary(report), facts: { ...report } });
}

/** Both accounts' balances and versions: unequal if anything moved. */
async function positionOf(database: Database): Promise<string> {
  const views = [await accountOf(database, "alice"), await accountOf(database, "shop")];
  return views
    .map(({ postedMinor, heldMinor, version }) => `${postedMinor}/${heldMinor}/${version}`)
    .join(" ");
}

async function accountOf(database: Database, accountId: string): Promise<AccountView> {
  const view = await getAccount(database, accountId);
  if (view === null) throw new DomainError("account_not_found", `there is no account ${accountId}`);
  return view;
}
