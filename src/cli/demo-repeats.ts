import type { Settings } from "../config/settings.ts";
import { getMessage } from "../database/outbox-queries.ts";
import { tracePayment } from "../database/payment-trace.ts";
import { DomainError } from "../domain/errors.ts";
import { createSnsClient, createSqsClient } from "../messaging/aws-clients.ts";
import { readQueueDepth } from "../messaging/queue-depths.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import type { PlayedPayment } from "./demo-payment.ts";
import { positionOf } from "./demo-stage.ts";
import type { Stage } from "./demo-stage.ts";
import { times } from "./explain-events.ts";
import { claim, eventually } from "./story.ts";

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
  const deliveries = await eventually("the ledger counts the second delivery", async () => {
    const found = (await tracePayment(database, answer.paymentId)).messages.find(
      (message) => message.messageId === messageId,
    );
    return (found?.deliveries ?? 0) >= 2 ? found?.deliveries : null;
  });
  const { transactions } = await tracePayment(database, answer.paymentId);
  claim(transactions.length === 1, `still one ledger transaction, found ${transactions.length}`);
  claim((await positionOf(database)) === before, "no balance has moved");
  story.tell({
    step: "absorbed",
    text: `delivered ${times(deliveries)}, booked once: still one ledger transaction`,
    facts: { deliveries, transactions: transactions.length },
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
      const { visible, inFlight } = await readQueueDepth(sqs, ledgerQueueUrl);
      const isEmpty = visible + inFlight === 0;
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
