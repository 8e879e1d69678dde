import {
  ChangeMessageVisibilityCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  ReceiveMessageCommand,
} from "@aws-sdk/client-sqs";
import type { Message, SQSClient } from "@aws-sdk/client-sqs";
import { parseMessage } from "./envelope.ts";
import type { IncomingMessage } from "./envelope.ts";

/** A message that the ledger's queue gave up. */
export interface DeadLetter {
  /** Of SQS; another one after a redrive. */
  readonly sqsMessageId: string;
  readonly receiptHandle: string;
  readonly body: string;
  readonly receiveCount: number;
  /** When it first came into a queue. */
  readonly sentAt: Date;
  /** Null where it is no message of ours by its shape. */
  readonly message: IncomingMessage | null;
  /** Why it is none; null where it is one. */
  readonly reason: string | null;
}

export interface DeadLetterStatus {
  /** All that the queue holds, those included that a look (this one's, too) hides for a moment. */
  readonly visible: number;
  readonly inFlight: number;
  /** Of the messages that were looked at: SQS tells the age of none that it doesn't hand out. */
  readonly oldestAgeSeconds: number | null;
  readonly sampled: number;
}

export interface DeadLetters {
  readonly status: () => Promise<DeadLetterStatus>;
  /**
   * Hands out each letter once, ten a call, until the queue has no other; what `visit` doesn't remove is given back at the
   * end, whatever happens.
   */
  readonly visit: (visit: (letter: DeadLetter) => Promise<Visited>) => Promise<void>;
  readonly remove: (letter: DeadLetter) => Promise<void>;
}

/** What a visitor did with a letter: `removed` by him, `kept`, or `enough`: kept, and he wants no more. */
export type Visited = "removed" | "kept" | "enough";

const RECEIVE_MAX = 10;
/** Longer than ten letters take; one that comes back meanwhile is known by its id. */
const VISIBILITY_SECONDS = 60;
/** Not 0: fauxqs 2.4 loses a message that is given back with 0. */
const GIVE_BACK_SECONDS = 2;
const SAMPLE_SECONDS = 2;
/** A receive may come back empty although there are messages. */
const EMPTY_RECEIVES = 2;

export function openDeadLetters(sqs: SQSClient, queueUrl: string): DeadLetters {
  const receive = async (visibilitySeconds: number): Promise<DeadLetter[]> => {
    const { Messages = [] } = await sqs.send(
      new ReceiveMessageCommand({
        QueueUrl: queueUrl,
        MaxNumberOfMessages: RECEIVE_MAX,
        WaitTimeSeconds: 1,
        VisibilityTimeout: visibilitySeconds,
        MessageSystemAttributeNames: ["ApproximateReceiveCount", "SentTimestamp"],
      }),
    );
    return Messages.map(toLetter);
  };
  const giveBack = async ({ receiptHandle }: DeadLetter): Promise<void> => {
    const QueueUrl = queueUrl;
    await sqs.send(
      new ChangeMessageVisibilityCommand({
        QueueUrl,
        ReceiptHandle: receiptHandle,
        VisibilityTimeout: GIVE_BACK_SECONDS,
      }),
    );
  };
  return {
    async status() {
      const { Attributes = {} } = await sqs.send(
        new GetQueueAttributesCommand({
          QueueUrl: queueUrl,
          AttributeNames: ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        }),
      );
      const inFlight = Number(Attributes.ApproximateNumberOfMessagesNotVisible ?? 0);
      const visible = Number(Attributes.ApproximateNumberOfMessages ?? 0) + inFlight;
      const sample = visible === 0 ? [] : await receive(SAMPLE_SECONDS);
      const oldest = Math.min(...sample.map(({ sentAt }) => sentAt.getTime()));
      const oldestAgeSeconds =
        sample.length === 0 ? null : Math.max(0, (Date.now() - oldest) / 1_000);
      return { visible, inFlight, oldestAgeSeconds, sampled: sample.length };
    },
    async visit(visit) {
      const kept = new Map<string, DeadLetter>();
      const seen = new Set<string>();
      let hasEnough = false;
      let empty = 0;
      try {
        while (!hasEnough && empty < EMPTY_RECEIVES) {
          const letters = await receive(VISIBILITY_SECONDS);
          for (const letter of letters) kept.set(letter.sqsMessageId, letter);
          const fresh = letters.filter(({ sqsMessageId }) => !seen.has(sqsMessageId));
          empty = fresh.length === 0 ? empty + 1 : 0;
          for (const letter of fresh) {
            if (hasEnough) break;
            seen.add(letter.sqsMessageId);
            const visited = await visit(letter);
            if (visited === "removed") kept.delete(letter.sqsMessageId);
            hasEnough = visited === "enough";
          }
        }
      } finally {
        // A letter that isn't given back comes back by itself.
        await Promise.allSettled([...kept.values()].map(giveBack));
      }
    },
    async remove({ receiptHandle }) {
      await sqs.send(
        new DeleteMessageCommand({ QueueUrl: queueUrl, ReceiptHandle: receiptHandle }),
      );
    },
  };
}

function toLetter({
  MessageId = "",
  ReceiptHandle = "",
  Body = "",
  Attributes,
}: Message): DeadLetter {
  const parsed = parseMessage(Body);
  return {
    sqsMessageId: MessageId,
    receiptHandle: ReceiptHandle,
    body: Body,
    receiveCount: Number(Attributes?.ApproximateReceiveCount ?? 1),
    sentAt: new Date(Number(Attributes?.SentTimestamp ?? Date.now())),
    message: parsed.ok ? parsed.message : null,
    reason: parsed.ok ? null : parsed.reason,
  };
}
