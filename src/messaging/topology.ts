import {
  CreateTopicCommand,
  ListSubscriptionsByTopicCommand,
  SetSubscriptionAttributesCommand,
  SubscribeCommand,
} from "@aws-sdk/client-sns";
import type { SNSClient } from "@aws-sdk/client-sns";
import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  SetQueueAttributesCommand,
} from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { createSnsClient, createSqsClient } from "./aws-clients.ts";
import type { AwsTarget } from "./aws-clients.ts";

export interface Topology {
  readonly topicArn: string;
  readonly ledgerQueueUrl: string;
  readonly ledgerDlqUrl: string;
}

/** What the ledger books. An automatic payment is booked from its creation, a manual one from its captures. */
const LEDGER_FILTER = {
  $or: [
    { type: ["payment.created"], capture: ["automatic"] },
    { type: ["payment.captured", "refund.created"] },
  ],
};

/** Received this often without an end, a message goes to the dead-letter queue. */
const RECEIVE_COUNT_MAX = 10;
/** Longer than starting a workflow on a busy Temporal takes; a crashed worker's messages come back after it. */
const VISIBILITY_SECONDS = 30;
/** The most that SQS keeps; a dead letter keeps its first time of arrival, so the DLQ must keep longer than the queue. */
const DLQ_RETENTION_SECONDS = 14 * 24 * 3600;
const QUEUE_RETENTION_SECONDS = 4 * 24 * 3600;

/** Creates topic, ledger queue, dead-letter queue and the filtered, raw subscription, named after the prefix; a second call changes nothing. */
export async function ensureTopology(
  target: AwsTarget,
  { prefix }: { prefix: string } = { prefix: "remit" },
): Promise<Topology> {
  const sns = createSnsClient(target, { requestTimeoutMs: 5_000 });
  const sqs = createSqsClient(target, { requestTimeoutMs: 5_000 });
  try {
    const topic = await sns.send(new CreateTopicCommand({ Name: `${prefix}-events` }));
    const topicArn = topic.TopicArn ?? "";
    const dlq = await ensureQueue(sqs, `${prefix}-ledger-dlq`, {
      MessageRetentionPeriod: String(DLQ_RETENTION_SECONDS),
    });
    const queue = await ensureQueue(sqs, `${prefix}-ledger`, {
      MessageRetentionPeriod: String(QUEUE_RETENTION_SECONDS),
      VisibilityTimeout: String(VISIBILITY_SECONDS),
      RedrivePolicy: JSON.stringify({
        deadLetterTargetArn: dlq.arn,
        maxReceiveCount: RECEIVE_COUNT_MAX,
      }),
    });
    await subscribe(sns, { topicArn, queueArn: queue.arn });
    return { topicArn, ledgerQueueUrl: queue.url, ledgerDlqUrl: dlq.url };
  } finally {
    sns.destroy();
    sqs.destroy();
  }
}

async function ensureQueue(
  sqs: SQSClient,
  name: string,
  attributes: Record<string, string>,
): Promise<{ url: string; arn: string }> {
  // Attributes are set apart: CreateQueue refuses a queue that exists with other ones.
  const { QueueUrl: url = "" } = await sqs.send(new CreateQueueCommand({ QueueName: name }));
  await sqs.send(new SetQueueAttributesCommand({ QueueUrl: url, Attributes: attributes }));
  const { Attributes } = await sqs.send(
    new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: ["QueueArn"] }),
  );
  return { url, arn: Attributes?.["QueueArn"] ?? "" };
}

async function subscribe(
  sns: SNSClient,
  { topicArn, queueArn }: { topicArn: string; queueArn: string },
): Promise<void> {
  const attributes = { RawMessageDelivery: "true", FilterPolicy: JSON.stringify(LEDGER_FILTER) };
  const existing = await findSubscription(sns, { topicArn, queueArn });
  if (existing === undefined) {
    await sns.send(
      new SubscribeCommand({
        TopicArn: topicArn,
        Protocol: "sqs",
        Endpoint: queueArn,
        Attributes: attributes,
      }),
    );
    return;
  }
  // Subscribe refuses one that exists with other attributes, which an earlier version may have made.
  for (const [AttributeName, AttributeValue] of Object.entries(attributes)) {
    await sns.send(
      new SetSubscriptionAttributesCommand({
        SubscriptionArn: existing,
        AttributeName,
        AttributeValue,
      }),
    );
  }
}

async function findSubscription(
  sns: SNSClient,
  { topicArn, queueArn }: { topicArn: string; queueArn: string },
): Promise<string | undefined> {
  let NextToken: string | undefined;
  do {
    const page = await sns.send(
      new ListSubscriptionsByTopicCommand({
        TopicArn: topicArn,
        ...(NextToken === undefined ? {} : { NextToken }),
      }),
    );
    const found = page.Subscriptions?.find(({ Endpoint }) => Endpoint === queueArn);
    if (found?.SubscriptionArn !== undefined) return found.SubscriptionArn;
    NextToken = page.NextToken;
  } while (NextToken !== undefined);
  return undefined;
}
