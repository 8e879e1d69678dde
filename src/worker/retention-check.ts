import type { Settings } from "../config/settings.ts";
import { DomainError } from "../domain/errors.ts";
import { createSqsClient } from "../messaging/aws-clients.ts";
import { assertInboxOutlivesQueues } from "../messaging/queue-retention.ts";
import type { Logger } from "../observability/logger.ts";

const ASK_TIMEOUT_MS = 5_000;

/**
 * Asks the queues how long they keep a message: at the start, where it is easy to mend, and again at each purge.
 * @throws DomainError `usage` where the inbox would forget before they do, `broker_unreachable`
 */
export async function assertRetention({ aws, worker, ...queues }: Settings): Promise<void> {
  const sqs = createSqsClient(aws, { requestTimeoutMs: ASK_TIMEOUT_MS });
  try {
    const { inboxRetentionMs } = worker;
    const { endpointUrl } = aws;
    await assertInboxOutlivesQueues(sqs, { ...queues, inboxRetentionMs, endpointUrl });
  } finally {
    sqs.destroy();
  }
}

/** The same at the start, where a broker that is away is no reason not to start. */
export async function checkRetention(settings: Settings, logger: Logger): Promise<void> {
  try {
    await assertRetention(settings);
  } catch (err) {
    if (!(err instanceof DomainError) || err.code !== "broker_unreachable") throw err;
    logger.warn({ err }, "the queues' retention isn't known yet");
  }
}
