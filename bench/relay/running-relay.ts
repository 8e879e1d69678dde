import { setTimeout as delay } from "node:timers/promises";
import { publishOutbox } from "../../src/activities/publish-outbox.ts";
import { UNREPORTED } from "../../src/activities/relay-progress.ts";
import { insertEvent } from "../../src/database/record-queries.ts";
import { createOutboxListener, createOutboxNotifier } from "../../src/database/outbox-wake-up.ts";
import { inTransaction } from "../../src/database/database.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import type { Publisher } from "../../src/messaging/sns-publisher.ts";
import { WHOLE_RANGE, WINDOW_MS } from "./drains.ts";
import { aCreatedEvent } from "./events.ts";
import { LEASE_MS, POLL_INTERVAL_MS, SEND_TIMEOUT_MS } from "./scene.ts";
import type { BenchDatabase, Scene } from "./scene.ts";

/** A relay at work with its listener, and a writer whose commits it is timed from. */
export interface RunningRelay {
  /** Commits events at a fixed rate; answers the ms from each commit to the broker's receipt, when all have one. */
  readonly flow: (load: Flow) => Promise<number[]>;
  readonly stop: () => Promise<void>;
}

export interface Flow {
  readonly perSecond: number;
  readonly seconds: number;
  /** False: the hints get lost, and the poll has to find the events. */
  readonly notifies: boolean;
}

const LISTENS_MS_MAX = 5_000;
/** What is not published after this many poll intervals is an error, not a latency. */
const POLLS_MAX = 10;

export async function startRelay(scene: Scene, database: BenchDatabase): Promise<RunningRelay> {
  const receipts = new Map<string, number>();
  const stopping = new AbortController();
  const listener = createOutboxListener({
    databaseUrl: database.url,
    onStateChange: () => undefined,
  });
  await until(() => listener.isAlive(), LISTENS_MS_MAX);
  const publisher = noteReceipts(createSnsPublisher(scene.sns, scene.topicArn), receipts);
  const running = (async () => {
    while (!stopping.signal.aborted) {
      await publishOutbox(
        {
          database: database.app,
          publisher,
          leaseMs: LEASE_MS,
          sendTimeoutMs: SEND_TIMEOUT_MS,
          watchOutbox: () => {
            const watch = listener.watch();
            return { wait: async (signal) => await watch.wait(POLL_INTERVAL_MS, signal) };
          },
          heartbeat: () => undefined,
          report: UNREPORTED,
          signal: stopping.signal,
        },
        { ...WHOLE_RANGE, windowMs: WINDOW_MS, eventsPerSecondMax: null },
      );
    }
  })();
  return {
    flow: async (load) => await flow(database, receipts, load),
    stop: async () => {
      stopping.abort();
      await running;
      await listener.close();
    },
  };
}

async function flow(
  { app }: BenchDatabase,
  receipts: ReadonlyMap<string, number>,
  { perSecond, seconds, notifies }: Flow,
): Promise<number[]> {
  const notifier = createOutboxNotifier(app.pool);
  const commits = new Map<string, number>();
  const since = performance.now();
  await Promise.all(
    Array.from({ length: perSecond * seconds }, async (_, index) => {
      await delay(Math.max(0, since + (index * 1_000) / perSecond - performance.now()));
      const event = aCreatedEvent();
      await inTransaction(app, async (tx) => await insertEvent(tx, event));
      commits.set(event.messageId, performance.now());
      if (notifies) notifier.notify();
    }),
  );
  await until(
    () => [...commits.keys()].every((id) => receipts.has(id)),
    POLLS_MAX * POLL_INTERVAL_MS,
  );
  // A receipt may be here before the answer of the commit is.
  return [...commits].map(([id, at]) => Math.max(0, (receipts.get(id) ?? Number.NaN) - at));
}

function noteReceipts(publisher: Publisher, receipts: Map<string, number>): Publisher {
  return {
    ...publisher,
    publish: async (messages, end) => {
      const results = await publisher.publish(messages, end);
      const now = performance.now();
      for (const { kind, messageId } of results) {
        if (kind === "accepted") receipts.set(messageId, now);
      }
      return results;
    },
  };
}

async function until(isSo: () => boolean, timeoutMs: number): Promise<void> {
  const endsAt = performance.now() + timeoutMs;
  while (!isSo()) {
    if (performance.now() > endsAt) throw new Error(`not so after ${timeoutMs} ms`);
    await delay(10);
  }
}
