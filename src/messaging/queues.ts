import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  SetQueueAttributesCommand,
} from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";

export interface Queue {
  readonly name: string;
  readonly url: string;
  readonly arn: string;
  readonly attributes: Readonly<Record<string, string>>;
}

export async function findQueue(sqs: SQSClient, name: string): Promise<Queue | null> {
  try {
    const { QueueUrl: url = "" } = await sqs.send(new GetQueueUrlCommand({ QueueName: name }));
    return await readQueue(sqs, { name, url });
  } catch (error) {
    if (isMissingQueue(error)) return null;
    throw error;
  }
}

/** Without attributes that can be set later: CreateQueue refuses a queue that somebody else made meanwhile with other ones. */
export async function makeQueue(sqs: SQSClient, name: string): Promise<Queue> {
  const Attributes = name.endsWith(".fifo") ? { FifoQueue: "true" } : {};
  const { QueueUrl: url = "" } = await sqs.send(
    new CreateQueueCommand({ QueueName: name, Attributes }),
  );
  return await readQueue(sqs, { name, url });
}

export async function setQueueAttributes(
  sqs: SQSClient,
  { url }: Queue,
  attributes: Record<string, string>,
): Promise<void> {
  await sqs.send(new SetQueueAttributesCommand({ QueueUrl: url, Attributes: attributes }));
}

/** A queue as it is. */
export async function readQueue(
  sqs: SQSClient,
  { name, url }: { name: string; url: string },
): Promise<Queue> {
  const { Attributes: attributes = {} } = await sqs.send(
    new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: ["All"] }),
  );
  return { name, url, arn: attributes["QueueArn"] ?? "", attributes };
}

/** Whether SQS says that there is no such queue. */
export function isMissingQueue(error: unknown): boolean {
  return (
    error instanceof Error &&
    /^(QueueDoesNotExist|AWS\.SimpleQueueService\.NonExistentQueue)$/.test(error.name)
  );
}
