import { GetTopicAttributesCommand, PublishBatchCommand } from "@aws-sdk/client-sns";
import type {
  MessageAttributeValue,
  PublishBatchRequestEntry,
  SNSClient,
} from "@aws-sdk/client-sns";
import pLimit from "p-limit";

/** A message as the outbox holds it. */
export interface OutgoingMessage {
  readonly messageId: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly aggregateVersion: string;
  readonly type: string;
  readonly payload: string;
  readonly headers: Readonly<Record<string, unknown>>;
  /** The how manieth time an operator sends it again: a FIFO topic would drop the same deduplication id within 5 minutes. */
  readonly republication?: number;
}

export interface AcceptedMessage {
  readonly kind: "accepted";
  readonly messageId: string;
  readonly brokerMessageId: string;
}

/** A fault is the message's own; an outage and throttling are the broker's state. */
export interface UnsentMessage {
  readonly kind: "fault" | "outage" | "throttled";
  readonly messageId: string;
  readonly error: string;
}

export type PublishResult = AcceptedMessage | UnsentMessage;

export interface Publisher {
  /**
   * Sends messages whose order among themselves doesn't matter; answers for each of them. After `until` (ms since the
   * epoch) no further call is made: what is left is answered as `throttled`, since nothing is known of it.
   */
  readonly publish: (
    messages: readonly OutgoingMessage[],
    until?: number,
  ) => Promise<PublishResult[]>;
  /** Whether the broker answers at all right now. */
  readonly isReachable: () => Promise<boolean>;
}

/** Limits of SNS PublishBatch: entries a call, and bytes a call with names, types and values of the attributes. */
const BATCH_ENTRIES_MAX = 10;
const BATCH_BYTES_MAX = 250_000;
/** More gain little against one broker (measured 1 : 2.0 : 2.3 for 1, 4 and 8). */
const CALLS_IN_FLIGHT = 4;

/** Sends to one topic; `callsInFlightMax` bounds the calls at a time over all batches. */
export function createSnsPublisher(
  sns: SNSClient,
  topicArn: string,
  { callsInFlightMax = CALLS_IN_FLIGHT }: { callsInFlightMax?: number } = {},
): Publisher {
  const isFifo = topicArn.endsWith(".fifo");
  const inFlight = pLimit(callsInFlightMax);

  async function send(messages: readonly OutgoingMessage[]): Promise<PublishResult[]> {
    try {
      const { Successful = [], Failed = [] } = await sns.send(
        new PublishBatchCommand({
          TopicArn: topicArn,
          PublishBatchRequestEntries: messages.map((message, index) =>
            toEntry(message, String(index), isFifo),
          ),
        }),
      );
      const accepted = new Map(Successful.map(({ Id, MessageId }) => [Id, MessageId]));
      const failed = new Map(Failed.map((entry) => [entry.Id, entry]));
      // 200 is not success: each entry is looked at, and one that the answer leaves out was not accepted.
      return messages.map(({ messageId }, index): PublishResult => {
        const brokerMessageId = accepted.get(String(index));
        if (brokerMessageId !== undefined) return { kind: "accepted", messageId, brokerMessageId };
        const failure = failed.get(String(index));
        return {
          kind: kindOf(failure?.Code ?? "NoAnswer", failure?.SenderFault === true),
          messageId,
          error: `${failure?.Code ?? "NoAnswer"}: ${failure?.Message ?? "the answer has no entry for it"}`,
        };
      });
    } catch (error) {
      return await afterRefusedCall(messages, error);
    }
  }

  /** One malformed entry can fail the whole call with 400: halve until it stands alone, never resend unchanged. */
  async function afterRefusedCall(
    messages: readonly OutgoingMessage[],
    error: unknown,
  ): Promise<PublishResult[]> {
    const { kind, text } = classify(error);
    const [first, ...others] = messages;
    if (kind === "fault" && first !== undefined && others.length > 0) {
      const middle = Math.ceil(messages.length / 2);
      const left = await send(messages.slice(0, middle));
      return [...left, ...(await send(messages.slice(middle)))];
    }
    return messages.map(({ messageId }) => ({ kind, messageId, error: text }));
  }

  return {
    async isReachable() {
      try {
        await sns.send(new GetTopicAttributesCommand({ TopicArn: topicArn }));
        return true;
      } catch (error) {
        // A refusal is an answer, too.
        return (
          (error as { $fault?: unknown }).$fault === "client" &&
          classify(error).kind !== "throttled"
        );
      }
    },
    async publish(messages, until = Number.POSITIVE_INFINITY) {
      const calls = pack(messages).map(
        async (call) =>
          await inFlight(async () => (Date.now() < until ? await send(call) : call.map(notSent))),
      );
      return (await Promise.all(calls)).flat();
    },
  };
}

function notSent({ messageId }: OutgoingMessage): UnsentMessage {
  return { kind: "throttled", messageId, error: "not sent: the lease is nearly over" };
}

function pack(messages: readonly OutgoingMessage[]): OutgoingMessage[][] {
  const calls: OutgoingMessage[][] = [];
  let bytes = 0;
  for (const message of messages) {
    const size = sizeOf(message);
    const last = calls.at(-1);
    if (last === undefined || last.length >= BATCH_ENTRIES_MAX || bytes + size > BATCH_BYTES_MAX) {
      calls.push([message]);
      bytes = size;
    } else {
      last.push(message);
      bytes += size;
    }
  }
  return calls;
}

function sizeOf(message: OutgoingMessage): number {
  const attributes = Object.entries(attributesOf(message)).map(
    ([name, { DataType, StringValue }]) => `${name}${DataType}${StringValue}`,
  );
  return Buffer.byteLength(message.payload) + Buffer.byteLength(attributes.join(""));
}

function toEntry(message: OutgoingMessage, id: string, isFifo: boolean): PublishBatchRequestEntry {
  return {
    Id: id,
    Message: message.payload,
    MessageAttributes: attributesOf(message),
    ...(isFifo
      ? {
          MessageGroupId: message.aggregateId,
          MessageDeduplicationId:
            message.republication === undefined
              ? message.messageId
              : `${message.messageId}-r${message.republication}`,
        }
      : {}),
  };
}

/** At most six, as the outbox accepts them: with raw delivery SQS drops a message of more than ten, and a tracing agent may add its own. */
function attributesOf(message: OutgoingMessage): Record<string, MessageAttributeValue> {
  const text = (value: string): MessageAttributeValue => ({
    DataType: "String",
    StringValue: value,
  });
  const attributes: Record<string, MessageAttributeValue> = {
    type: text(message.type),
    aggregateType: text(message.aggregateType),
    aggregateVersion: text(message.aggregateVersion),
  };
  for (const [name, value] of Object.entries(message.headers)) {
    if (typeof value === "string" && value !== "") attributes[name] = text(value);
  }
  return attributes;
}

/** Of the errors of a whole call, these say that the call was malformed. All others are a state that passes. */
const FAULTS = new Set([
  "BatchEntryIdsNotDistinctException",
  "BatchRequestTooLongException",
  "InvalidBatchEntryIdException",
  "InvalidParameter",
  "InvalidParameterException",
  "InvalidParameterValue",
  "ParameterValueInvalid",
  "InvalidParameterValueException",
  "ValidationError",
  "ValidationException",
  "InvalidMessageContents",
]);

function classify(error: unknown): { kind: UnsentMessage["kind"]; text: string } {
  const name = error instanceof Error ? error.name : "unknown";
  const message = error instanceof Error ? error.message : String(error);
  return { kind: kindOf(name, FAULTS.has(name)), text: `${name}: ${message}` };
}

function kindOf(code: string, isFault: boolean): UnsentMessage["kind"] {
  if (/Throttl|TooManyRequests|SlowDown|RequestLimitExceeded/.test(code)) return "throttled";
  return isFault ? "fault" : "outage";
}
