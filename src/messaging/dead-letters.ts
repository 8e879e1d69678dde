import {
  ChangeMessageVisibilityBatchCommand,
  DeleteMessageCommand,
  ReceiveMessageCommand,
} from "@aws-sdk/client-sqs";
import type { Message, SQSClient } from "@aws-sdk/client-sqs";
import { parseMessage } from "./envelope.ts";
import type { IncomingMessage } from "./envelope.ts";
import { readQueueDepth } from "./queue-depths.ts";
import type { QueueDepth } from "./queue-depths.ts";

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
  /** Why it is none, in one line; null where it is one. */
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
/**
 * Ten letters take at most two minutes: each a send, a delete, and a pause of a second. What a run keeps must stay hidden
 * while it goes through the others, or it would meet the same ones again and take the queue for exhausted.
 */
const VISIBILITY_SECONDS = 300;
/** Not 0: fauxqs 2.4 loses a message that is given back with 0. */
const GIVE_BACK_SECONDS = 2;
const SAMPLE_SECONDS = 2;
/** A receive may come back empty although there are messages. */
const EMPTY_RECEIVES = 2;
const GIVE_BACK_CALLS = 8;

export function openDeadLetters(sqs: SQSClient, queueUrl: string): DeadLetters {
  const queue = new Queue(sqs, queueUrl);
  return {
    async status() {
      const { visible: shown, inFlight } = await queue.depth();
      const visible = shown + inFlight;
      const sample = visible === 0 ? [] : await queue.receive(SAMPLE_SECONDS);
      const oldest = Math.min(...sample.map(({ sentAt }) => sentAt.getTime()));
      const oldestAgeSeconds =
        sample.length === 0 ? null : Math.max(0, (Date.now() - oldest) / 1_000);
      return { visible, inFlight, oldestAgeSeconds, sampled: sample.length };
    },
    visit: async (visit) => await visitEach(queue, visit),
    remove: async ({ receiptHandle }) => await queue.remove(receiptHandle),
  };
}

async function visitEach(
  queue: Queue,
  visit: (letter: DeadLetter) => Promise<Visited>,
): Promise<void> {
  /** By SQS's id the newest receipt of what is in hand; a letter that comes twice is visited once. */
  const inHand = new Map<string, string>();
  const seen = new Set<string>();
  let hasEnough = false;
  let empty = 0;
  try {
    while (!hasEnough && empty < EMPTY_RECEIVES) {
      const letters = await queue.receive(VISIBILITY_SECONDS);
      for (const { sqsMessageId, receiptHandle } of letters) {
        inHand.set(sqsMessageId, receiptHandle);
      }
      empty = letters.length === 0 ? empty + 1 : 0;
      for (const letter of letters) {
        if (hasEnough) break;
        if (seen.has(letter.sqsMessageId)) continue;
        seen.add(letter.sqsMessageId);
        const visited = await visit(letter);
        if (visited === "removed") inHand.delete(letter.sqsMessageId);
        hasEnough = visited === "enough";
      }
    }
  } finally {
    await queue.giveBack([...inHand.values()]);
  }
}

/** The calls to SQS, in letters. */
class Queue {
  readonly #sqs: SQSClient;
  readonly #url: string;

  constructor(sqs: SQSClient, url: string) {
    this.#sqs = sqs;
    this.#url = url;
  }

  async depth(): Promise<QueueDepth> {
    return await readQueueDepth(this.#sqs, this.#url);
  }

  async receive(visibilitySeconds: number): Promise<DeadLetter[]> {
    const { Messages = [] } = await this.#sqs.send(
      new ReceiveMessageCommand({
        QueueUrl: this.#url,
        MaxNumberOfMessages: RECEIVE_MAX,
        WaitTimeSeconds: 1,
        VisibilityTimeout: visibilitySeconds,
        MessageSystemAttributeNames: ["ApproximateReceiveCount", "SentTimestamp"],
      }),
    );
    return Messages.map(toLetter);
  }

  async remove(receiptHandle: string): Promise<void> {
    await this.#sqs.send(
      new DeleteMessageCommand({ QueueUrl: this.#url, ReceiptHandle: receiptHandle }),
    );
  }

  /** Never fails: what isn't given back comes back by itself, when its visibility ends. */
  async giveBack(receiptHandles: readonly string[]): Promise<void> {
    const step = RECEIVE_MAX * GIVE_BACK_CALLS;
    for (let first = 0; first < receiptHandles.length; first += step) {
      const calls = Array.from({ length: GIVE_BACK_CALLS }, (_, call) => first + call * RECEIVE_MAX)
        .map((from) => receiptHandles.slice(from, from + RECEIVE_MAX))
        .filter(({ length }) => length > 0);
      const answers = await Promise.allSettled(
        calls.map(async (handles) => await this.#giveBackTen(handles)),
      );
      // Nobody answers: thousands of calls more would only keep the operator waiting.
      if (answers.every(({ status }) => status === "rejected")) return;
    }
  }

  async #giveBackTen(receiptHandles: readonly string[]): Promise<void> {
    await this.#sqs.send(
      new ChangeMessageVisibilityBatchCommand({
        QueueUrl: this.#url,
        Entries: receiptHandles.map((handle, index) => ({
          Id: String(index),
          ReceiptHandle: handle,
          VisibilityTimeout: GIVE_BACK_SECONDS,
        })),
      }),
    );
  }
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
    reason: parsed.ok ? null : inOneLine(parsed.reason),
  };
}

/** Zod lists what it misses in lines of its own: "✖ what" and "→ at path". */
function inOneLine(reason: string): string {
  return reason
    .replaceAll(/\s*→ at /g, " at ")
    .replaceAll(/\s*✖ /g, "; ")
    .replace(/^; /, "");
}
