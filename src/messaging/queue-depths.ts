import { GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";

/** What a queue holds, as SQS estimates it; asking hands out no message. */
export interface QueueDepth {
  readonly visible: number;
  readonly inFlight: number;
}

export async function readQueueDepth(sqs: SQSClient, queueUrl: string): Promise<QueueDepth> {
  const { Attributes = {} } = await sqs.send(
    new GetQueueAttributesCommand({
      QueueUrl: queueUrl,
      AttributeNames: ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    }),
  );
  return depthOf(Attributes);
}

/** The same from attributes that were read already. */
export function depthOf(attributes: Readonly<Record<string, string>>): QueueDepth {
  return {
    visible: Number(attributes["ApproximateNumberOfMessages"] ?? 0),
    inFlight: Number(attributes["ApproximateNumberOfMessagesNotVisible"] ?? 0),
  };
}
