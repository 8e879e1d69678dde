import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { PublishBatchCommand } from "@aws-sdk/client-sns";
import type { MessageAttributeValue, SNSClient } from "@aws-sdk/client-sns";
import { publishOutbox } from "../../src/activities/publish-outbox.ts";
import { UNREPORTED } from "../../src/activities/relay-progress.ts";
import type { Database, Tx } from "../../src/database/database.ts";
import type { OutgoingMessage, Publisher } from "../../src/messaging/sns-publisher.ts";
import { LEASE_MS, POLL_INTERVAL_MS, SEND_TIMEOUT_MS } from "./scene.ts";

/** As `createSnsPublisher` has it unless it is told otherwise. */
const CALLS_IN_FLIGHT = 4;
const ENTRIES_A_CALL = 10;
/** The relay's window in production is as long. */
export const WINDOW_MS = 60_000;
export const WHOLE_RANGE = { fromShard: 0, toShard: 63 };

/** Where the time of a drain went: ms in each kind of step, summed over all, and how many there were. */
export type StepTimes = Map<string, { ms: number; count: number }>;

/**
 * The floor: the same calls with the same entries at the same concurrency, prepared beforehand, and no database. Answers ms.
 */
export async function drainBareLoop(
  { sns, topicArn }: { sns: SNSClient; topicArn: string },
  messages: readonly OutgoingMessage[],
): Promise<number> {
  const calls: PublishBatchCommand[] = [];
  for (let start = 0; start < messages.length; start += ENTRIES_A_CALL) {
    const entries = messages.slice(start, start + ENTRIES_A_CALL).map(toEntry);
    calls.push(
      new PublishBatchCommand({ TopicArn: topicArn, PublishBatchRequestEntries: entries }),
    );
  }
  const since = performance.now();
  const lane = async (): Promise<void> => {
    for (let call = calls.shift(); call !== undefined; call = calls.shift()) {
      const { Failed = [] } = await sns.send(call);
      if (Failed.length > 0) throw new Error(`the broker refused ${Failed.length} entries`);
    }
  };
  await Promise.all(Array.from({ length: CALLS_IN_FLIGHT }, lane));
  return performance.now() - since;
}

function toEntry(
  message: OutgoingMessage,
  index: number,
): {
  Id: string;
  Message: string;
  MessageAttributes: Record<string, MessageAttributeValue>;
} {
  const attributes = {
    type: message.type,
    aggregateType: message.aggregateType,
    aggregateVersion: message.aggregateVersion,
    ...message.headers,
  };
  return {
    Id: String(index),
    Message: message.payload,
    MessageAttributes: Object.fromEntries(
      Object.entries(attributes).map(([name, value]) => [
        name,
        { DataType: "String", StringValue: String(value) },
      ]),
    ),
  };
}

/** Remit's relay over all shards until `count` events are marked; answers ms, and where they went. */
export async function drainOutbox({
  database,
  publisher,
  count,
}: {
  database: Database;
  publisher: Publisher;
  count: number;
}): Promise<{ ms: number; steps: StepTimes }> {
  const steps: StepTimes = new Map();
  const done = new AbortController();
  let accepted = 0;
  const counting: Publisher = {
    ...publisher,
    publish: async (messages, until) => {
      const results = await timed(steps, "send", async () => {
        return await publisher.publish(messages, until);
      });
      accepted += results.filter(({ kind }) => kind === "accepted").length;
      // The window ends in order: what was accepted is marked before it returns.
      if (accepted >= count) done.abort();
      return results;
    },
  };
  const since = performance.now();
  while (!done.signal.aborted) {
    await publishOutbox(
      {
        database: timedDatabase(database, steps),
        publisher: counting,
        leaseMs: LEASE_MS,
        sendTimeoutMs: SEND_TIMEOUT_MS,
        watchOutbox: () => ({ wait: pollOnly }),
        heartbeat: () => undefined,
        report: UNREPORTED,
        signal: done.signal,
      },
      { ...WHOLE_RANGE, windowMs: WINDOW_MS, eventsPerSecondMax: null },
    );
  }
  return { ms: performance.now() - since, steps };
}

/** Takes everything at once: what is left is the cost of the queue itself. */
export function createNoopPublisher(): Publisher {
  return {
    publish: async (messages) =>
      await Promise.resolve(
        messages.map(({ messageId }) => ({
          kind: "accepted" as const,
          messageId,
          brokerMessageId: randomUUID(),
        })),
      ),
    isReachable: async () => await Promise.resolve(true),
  };
}

/** A wait that nobody ends before the poll interval. */
export async function pollOnly(signal: AbortSignal): Promise<void> {
  await delay(POLL_INTERVAL_MS, undefined, { signal }).catch(() => undefined);
}

function timedDatabase(database: Database, steps: StepTimes): Tx {
  return {
    run: async (statement, values) =>
      await timed(steps, statement.name, async () => await database.run(statement, values)),
  };
}

async function timed<Result>(
  steps: StepTimes,
  name: string,
  work: () => Promise<Result>,
): Promise<Result> {
  const since = performance.now();
  try {
    return await work();
  } finally {
    const { ms, count } = steps.get(name) ?? { ms: 0, count: 0 };
    steps.set(name, { ms: ms + performance.now() - since, count: count + 1 });
  }
}
