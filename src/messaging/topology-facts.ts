import type { SNSClient } from "@aws-sdk/client-sns";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { GetTopicAttributesCommand } from "@aws-sdk/client-sns";
import { isMissingQueue, readQueue } from "./queues.ts";
import type { Queue } from "./queues.ts";
import { findSubscription, isMissingTopic } from "./topics.ts";
import type { Subscription } from "./topics.ts";

/** What a look at one part met: it, nothing of that name, or a refusal. */
export type Look<Part> =
  | { readonly kind: "found"; readonly part: Part }
  | { readonly kind: "missing" }
  | { readonly kind: "unknown"; readonly error: unknown };

/** Topic, queues and subscription as they are; nothing is changed by looking. */
export interface TopologyFacts {
  readonly topic: Look<{ readonly arn: string }>;
  readonly queue: Look<Queue>;
  readonly dlq: Look<Queue>;
  readonly subscription: Look<Subscription>;
}

/** Looks at each part by its own address, whatever became of the others. An empty address is one that isn't there. */
export async function readTopologyFacts(
  { sns, sqs }: { sns: SNSClient; sqs: SQSClient },
  addresses: { topicArn: string; ledgerQueueUrl: string; ledgerDlqUrl: string },
): Promise<TopologyFacts> {
  const { topicArn, ledgerQueueUrl, ledgerDlqUrl } = addresses;
  const [topic, queue, dlq] = await Promise.all([
    lookAt(topicArn, async () => {
      await sns.send(new GetTopicAttributesCommand({ TopicArn: topicArn }));
      return { arn: topicArn };
    }),
    lookAt(ledgerQueueUrl, async () => await readQueue(sqs, queueAt(ledgerQueueUrl))),
    lookAt(ledgerDlqUrl, async () => await readQueue(sqs, queueAt(ledgerDlqUrl))),
  ]);
  if (topic.kind !== "found" || queue.kind !== "found") {
    return { topic, queue, dlq, subscription: { kind: "missing" } };
  }
  const ends = { topicArn, queueArn: queue.part.arn };
  const subscription = await lookAt(topicArn, async () => await findSubscription(sns, ends));
  return { topic, queue, dlq, subscription };
}

async function lookAt<Part>(
  address: string,
  look: () => Promise<Part | null>,
): Promise<Look<Part>> {
  if (address === "") return { kind: "missing" };
  try {
    const part = await look();
    return part === null ? { kind: "missing" } : { kind: "found", part };
  } catch (error) {
    return isMissingQueue(error) || isMissingTopic(error)
      ? { kind: "missing" }
      : { kind: "unknown", error };
  }
}

function queueAt(url: string): { name: string; url: string } {
  return { name: url.split("/").at(-1) ?? url, url };
}
