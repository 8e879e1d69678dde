import {
  ChangeMessageVisibilityBatchCommand,
  DeleteMessageBatchCommand,
  ReceiveMessageCommand,
} from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";

export interface ReceivedMessage {
  readonly body: string;
  readonly sqsMessageId: string;
  readonly receiptHandle: string;
  readonly receiveCount: number;
}

export interface Receiver {
  /** Long-polls; never cut short: an aborted poll still takes a message and hides it. */
  readonly receive: (max: number) => Promise<ReceivedMessage[]>;
  readonly delete: (receiptHandles: readonly string[]) => Promise<void>;
  /** Makes the message visible again after so many seconds; 0 gives it back at once. */
  readonly release: (receiptHandles: readonly string[], afterSeconds: number) => Promise<void>;
}

/** The most that one receive or one batch carries. */
export const RECEIVE_MAX = 10;
/** Short, so that a shutdown that lets the poll return is short too. */
export const POLL_SECONDS = 5;

/**
 * Ours, whatever the queue's own is. What is received has its start or its end within a third of it (each call has a
 * deadline), so nothing has to be prolonged; a dead worker's messages come again after it.
 */
export const VISIBILITY_SECONDS = 30;

/** Polls on one client and answers on another, so that open long polls never use up the sockets of the deletes. */
export function createSqsReceiver({
  polling,
  answering,
  queueUrl,
}: {
  polling: SQSClient;
  answering: SQSClient;
  queueUrl: string;
}): Receiver {
  return {
    async receive(max) {
      const { Messages = [] } = await polling.send(
        new ReceiveMessageCommand({
          QueueUrl: queueUrl,
          MaxNumberOfMessages: Math.min(max, RECEIVE_MAX),
          WaitTimeSeconds: POLL_SECONDS,
          VisibilityTimeout: VISIBILITY_SECONDS,
          // Without this the receive count comes back empty.
          MessageSystemAttributeNames: ["ApproximateReceiveCount"],
        }),
      );
      return Messages.map(({ Body = "", MessageId = "", ReceiptHandle = "", Attributes }) => ({
        body: Body,
        sqsMessageId: MessageId,
        receiptHandle: ReceiptHandle,
        receiveCount: Number(Attributes?.ApproximateReceiveCount ?? 1),
      }));
    },
    async delete(receiptHandles) {
      // A failed delete is no loss: the message comes again and finds its workflow.
      await answering.send(
        new DeleteMessageBatchCommand({
          QueueUrl: queueUrl,
          Entries: receiptHandles.map((handle, index) => ({
            Id: String(index),
            ReceiptHandle: handle,
          })),
        }),
      );
    },
    async release(receiptHandles, afterSeconds) {
      await answering.send(
        new ChangeMessageVisibilityBatchCommand({
          QueueUrl: queueUrl,
          Entries: receiptHandles.map((handle, index) => ({
            Id: String(index),
            ReceiptHandle: handle,
            VisibilityTimeout: afterSeconds,
          })),
        }),
      );
    },
  };
}
