import {
  CreateTopicCommand,
  GetSubscriptionAttributesCommand,
  GetTopicAttributesCommand,
  ListSubscriptionsByTopicCommand,
  ListTopicsCommand,
  SetSubscriptionAttributesCommand,
  SubscribeCommand,
} from "@aws-sdk/client-sns";
import type { SNSClient } from "@aws-sdk/client-sns";

export interface Subscription {
  readonly arn: string;
  readonly attributes: Readonly<Record<string, string>>;
}

export interface SubscriptionEnds {
  readonly topicArn: string;
  readonly queueArn: string;
}

/** A queue of the same account and region says how the topic's ARN must read; without one, the list of topics is read. */
export async function findTopic(
  sns: SNSClient,
  { name, neighbourArn }: { name: string; neighbourArn: string | null },
): Promise<string | null> {
  if (neighbourArn === null) return await findTopicByName(sns, name);
  const [, partition, , region, account] = neighbourArn.split(":");
  const topicArn = `arn:${partition}:sns:${region}:${account}:${name}`;
  try {
    await sns.send(new GetTopicAttributesCommand({ TopicArn: topicArn }));
    return topicArn;
  } catch (error) {
    if (isMissingTopic(error)) return null;
    throw error;
  }
}

/** Whether SNS says that there is no such topic. */
export function isMissingTopic(error: unknown): boolean {
  return error instanceof Error && /^NotFound(Exception)?$/.test(error.name);
}

export async function makeTopic(sns: SNSClient, name: string): Promise<string> {
  const Attributes = name.endsWith(".fifo") ? { FifoTopic: "true" } : {};
  const { TopicArn: topicArn = "" } = await sns.send(
    new CreateTopicCommand({ Name: name, Attributes }),
  );
  return topicArn;
}

export async function findSubscription(
  sns: SNSClient,
  { topicArn, queueArn }: SubscriptionEnds,
): Promise<Subscription | null> {
  let NextToken: string | undefined;
  do {
    const page = await sns.send(
      new ListSubscriptionsByTopicCommand({ TopicArn: topicArn, ...next(NextToken) }),
    );
    const found = page.Subscriptions?.find(({ Endpoint }) => Endpoint === queueArn);
    if (found?.SubscriptionArn !== undefined) {
      return await readSubscription(sns, found.SubscriptionArn);
    }
    NextToken = page.NextToken;
  } while (NextToken !== undefined);
  return null;
}

export async function makeSubscription(
  sns: SNSClient,
  { topicArn, queueArn }: SubscriptionEnds,
  attributes: Record<string, string>,
): Promise<void> {
  await sns.send(
    new SubscribeCommand({
      TopicArn: topicArn,
      Protocol: "sqs",
      Endpoint: queueArn,
      Attributes: attributes,
    }),
  );
}

/** Subscribe refuses a subscription that exists with other attributes, so one is changed by itself. */
export async function setSubscriptionAttribute(
  sns: SNSClient,
  subscriptionArn: string,
  [name, value]: readonly [string, string],
): Promise<void> {
  await sns.send(
    new SetSubscriptionAttributesCommand({
      SubscriptionArn: subscriptionArn,
      AttributeName: name,
      AttributeValue: value,
    }),
  );
}

async function readSubscription(sns: SNSClient, arn: string): Promise<Subscription> {
  const { Attributes: attributes = {} } = await sns.send(
    new GetSubscriptionAttributesCommand({ SubscriptionArn: arn }),
  );
  return { arn, attributes };
}

async function findTopicByName(sns: SNSClient, name: string): Promise<string | null> {
  let NextToken: string | undefined;
  do {
    const page = await sns.send(new ListTopicsCommand(next(NextToken)));
    const found = page.Topics?.find(({ TopicArn }) => TopicArn?.endsWith(`:${name}`) === true);
    if (found?.TopicArn !== undefined) return found.TopicArn;
    NextToken = page.NextToken;
  } while (NextToken !== undefined);
  return null;
}

function next(NextToken: string | undefined): { NextToken?: string } {
  return NextToken === undefined ? {} : { NextToken };
}
