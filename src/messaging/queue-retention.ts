import { GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { DomainError } from "../domain/errors.ts";
import { awsError } from "./aws-error.ts";

/** What SQS keeps at most; assumed of a queue that isn't named. */
const SQS_RETENTION_SECONDS_MAX = 14 * 24 * 3_600;
/** Clocks differ, a purge takes its time, and an operator redrives at the last moment. */
const MARGIN_MS = 24 * 3_600_000;

export interface QueuesAndInbox {
  readonly ledgerQueueUrl: string;
  /** Empty where it isn't known. */
  readonly ledgerDlqUrl: string;
  readonly inboxRetentionMs: number;
  /** Null for AWS itself. */
  readonly endpointUrl: string | null;
}

/**
 * A message may come again as long as the ledger's queue and then the dead-letter queue keep it: the inbox must remember it
 * for longer. Both are asked, since their retention can be changed at any time.
 *
 * @throws DomainError `usage` with the least that is needed; `broker_unreachable`
 */
export async function assertInboxOutlivesQueues(
  sqs: SQSClient,
  { ledgerQueueUrl, ledgerDlqUrl, inboxRetentionMs, endpointUrl }: QueuesAndInbox,
): Promise<void> {
  const [queueMs = 0, dlqMs = 0] = await Promise.all(
    [ledgerQueueUrl, ledgerDlqUrl].map(async (url) => (await retentionSeconds(sqs, url)) * 1_000),
  ).catch((error: unknown) => {
    throw awsError(error, { endpointUrl });
  });
  const leastMs = queueMs + dlqMs + MARGIN_MS;
  if (inboxRetentionMs >= leastMs) return;
  throw new DomainError(
    "usage",
    `REMIT_INBOX_RETENTION_HOURS is ${hours(inboxRetentionMs)}, and the queues may bring a message for ${hours(queueMs)} + ` +
      `${hours(dlqMs)} hours: set it to ${hours(leastMs)} or more`,
  );
}

async function retentionSeconds(sqs: SQSClient, queueUrl: string): Promise<number> {
  if (queueUrl === "") return SQS_RETENTION_SECONDS_MAX;
  const { Attributes } = await sqs.send(
    new GetQueueAttributesCommand({
      QueueUrl: queueUrl,
      AttributeNames: ["MessageRetentionPeriod"],
    }),
  );
  return Number(Attributes?.MessageRetentionPeriod ?? SQS_RETENTION_SECONDS_MAX);
}

function hours(ms: number): number {
  return Math.ceil(ms / 3_600_000);
}
