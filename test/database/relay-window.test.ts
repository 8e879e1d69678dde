import { Client } from "pg";
import { publishOutbox } from "../../src/activities/publish-outbox.ts";
import { UNREPORTED } from "../../src/activities/relay-progress.ts";
import type { PublishOutboxDependencies } from "../../src/activities/publish-outbox.ts";
import type { PublishOutboxSummary } from "../../src/activities/relay-progress.ts";
import type {
  OutgoingMessage,
  Publisher,
  PublishResult,
} from "../../src/messaging/sns-publisher.ts";
import { emptyOutbox, useDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";

const database = useDatabase();
const WINDOW = { fromShard: 0, toShard: 63, windowMs: 60_000, eventsPerSecondMax: null };

beforeEach(async () => {
  await emptyOutbox(database());
});

/** `count` events of each aggregate. */
async function events(aggregates: number, count: number): Promise<void> {
  await database().admin(
    `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
     SELECT uuidv7(), 'thing', 'thing-' || a, 'thing.changed', '{}'
       FROM generate_series(1, $2::int) n CROSS JOIN generate_series(1, $1::int) a`,
    [aggregates, count],
  );
}

async function unpublished(): Promise<number> {
  const [row] = await database().admin<{ count: string }>(
    "SELECT count(*) FROM remit.outbox WHERE status <> 'PUBLISHED'",
  );
  return Number(row?.count);
}

function accept(messages: readonly OutgoingMessage[]): PublishResult[] {
  return messages.map(({ messageId }) => ({
    kind: "accepted",
    messageId,
    brokerMessageId: `sns-${messageId}`,
  }));
}

interface Relay {
  readonly summaries: PublishOutboxSummary[];
  readonly stop: () => Promise<PublishOutboxSummary>;
}

/** Runs a window until it is stopped. */
function startRelay(
  publish: Publisher["publish"],
  {
    eventsPerSecondMax = null,
    ...overrides
  }: Partial<PublishOutboxDependencies> & {
    eventsPerSecondMax?: number | null;
  } = {},
): Relay {
  const stopping = new AbortController();
  const summaries: PublishOutboxSummary[] = [];
  const ended = publishOutbox(
    {
      database: database().app,
      publisher: { publish, isReachable: async () => await Promise.resolve(true) },
      leaseMs: 10_000,
      sendTimeoutMs: 3_000,
      heartbeat: (summary) => summaries.push(summary),
      report: UNREPORTED,
      signal: stopping.signal,
      watchOutbox: () => ({
        wait: async (signal) => {
          await new Promise<void>((resolve) => {
            const timer = setTimeout(resolve, 50);
            signal.addEventListener("abort", () => {
              clearTimeout(timer);
              resolve();
            });
          });
        },
      }),
      ...overrides,
    },
    { ...WINDOW, eventsPerSecondMax },
  );
  ended.catch(() => undefined);
  return {
    summaries,
    stop: async () => {
      stopping.abort();
      return await ended;
    },
  };
}

describe("publishOutbox", () => {
  test("claims the next batch while this one is sent, and never an aggregate twice at a time", async () => {
    await events(250, 1);
    const batches: string[][] = [];
    const letGo = Promise.withResolvers<undefined>();
    const relay = startRelay(async (messages) => {
      batches.push(messages.map(({ aggregateId }) => aggregateId));
      await letGo.promise;
      return accept(messages);
    });
    await eventually(() => expect(batches).toHaveLength(3));
    expect(new Set(batches.flat()).size).toBe(250);
    letGo.resolve(undefined);
    await eventually(async () => expect(await unpublished()).toBe(0));
    expect(await relay.stop()).toMatchObject({ published: 250, lostLeases: 0, outage: null });
  });

  test("one aggregate's slow send holds back its followers and nobody else", async () => {
    await events(150, 3);
    const sent: string[] = [];
    const letGo = Promise.withResolvers<undefined>();
    const relay = startRelay(async (messages) => {
      if (messages.some(({ aggregateId }) => aggregateId === "thing-7")) await letGo.promise;
      sent.push(
        ...messages.map(
          ({ aggregateId, aggregateVersion }) => `${aggregateId}/${aggregateVersion}`,
        ),
      );
      return accept(messages);
    });
    // What shares its wave waits with it; what is claimed after it doesn't.
    await eventually(() => expect(sent.length).toBeGreaterThanOrEqual(150));
    expect(sent.filter((event) => event.startsWith("thing-7/"))).toEqual([]);
    letGo.resolve(undefined);
    await eventually(async () => expect(await unpublished()).toBe(0));
    expect(sent.filter((event) => event.startsWith("thing-7/"))).toEqual([
      "thing-7/1",
      "thing-7/2",
      "thing-7/3",
    ]);
    await relay.stop();
  });

  test("keeps the order of each aggregate through four relays, refusals and delays; nothing twice, nothing left", async () => {
    await events(40, 25);
    const seen = new Map<string, number>();
    const breaks: string[] = [];
    const count = new Map<string, number>();
    const publish: Publisher["publish"] = async (messages) => {
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 15));
      return messages.map((message): PublishResult => {
        const { messageId, aggregateId, aggregateVersion } = message;
        if (Math.random() < 0.02) return { kind: "throttled", messageId, error: "slow down" };
        const version = Number(aggregateVersion);
        if (version !== (seen.get(aggregateId) ?? 0) + 1) breaks.push(`${aggregateId}/${version}`);
        seen.set(aggregateId, version);
        count.set(messageId, (count.get(messageId) ?? 0) + 1);
        return { kind: "accepted", messageId, brokerMessageId: `sns-${messageId}` };
      });
    };
    const relays = [1, 2, 3, 4].map(() => startRelay(publish));
    await eventually(async () => expect(await unpublished()).toBe(0), { timeoutMs: 20_000 });
    const summaries = await Promise.all(relays.map(async (relay) => await relay.stop()));
    expect(breaks).toEqual([]);
    expect(count.size).toBe(1_000);
    expect([...count.values()].every((times) => times === 1)).toBe(true);
    expect(summaries.reduce((sum, { published }) => sum + published, 0)).toBe(1_000);
    expect(summaries.every(({ lostLeases }) => lostLeases === 0)).toBe(true);
  });

  test("holds no transaction open while the broker takes its time, and waits for nobody else's", async () => {
    const stranger = new Client({ connectionString: database().adminUrl });
    await stranger.connect();
    await stranger.query("BEGIN; SELECT pg_current_xact_id()");
    await events(20, 1);
    const sending = Promise.withResolvers<undefined>();
    const letGo = Promise.withResolvers<undefined>();
    const relay = startRelay(async (messages) => {
      sending.resolve(undefined);
      await letGo.promise;
      return accept(messages);
    });
    await sending.promise;
    const open = await database().admin(
      "SELECT state, query FROM pg_stat_activity WHERE application_name = 'test' AND datname = current_database() AND xact_start IS NOT NULL AND state <> 'active'",
    );
    expect(open).toEqual([]);
    letGo.resolve(undefined);
    await eventually(async () => expect(await unpublished()).toBe(0));
    await relay.stop();
    await stranger.query("ROLLBACK");
    await stranger.end();
  });

  test("a poison row at the head of ten thousand holds back nobody but its own followers", async () => {
    await events(10_000, 1);
    const [head] = await database().admin<{ id: string }>(
      "SELECT aggregate_id AS id FROM remit.outbox ORDER BY shard, aggregate_type, aggregate_id LIMIT 1",
    );
    await database().admin(
      "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES (uuidv7(), 'thing', $1, 'thing.changed', '{}')",
      [head?.id],
    );
    const publish: Publisher["publish"] = async (messages) =>
      await Promise.resolve(
        messages.map(({ aggregateId, messageId }): PublishResult => {
          if (aggregateId === head?.id) return { kind: "fault", messageId, error: "too big" };
          return { kind: "accepted", messageId, brokerMessageId: `sns-${messageId}` };
        }),
      );
    const relay = startRelay(publish);
    const published = async (): Promise<number> => 10_001 - (await unpublished());
    // A window ends early after five thousand; the next one goes on.
    await eventually(async () => expect(await published()).toBeGreaterThanOrEqual(5_000));
    await relay.stop();
    const next = startRelay(publish);
    await eventually(async () => expect(await published()).toBe(9_999), { timeoutMs: 20_000 });
    await next.stop();
    const rows = await database().admin<{ attempts: number; status: string }>(
      "SELECT attempts, status FROM remit.outbox WHERE aggregate_id = $1 ORDER BY aggregate_version",
      [head?.id],
    );
    expect(rows[0]?.attempts).toBeGreaterThan(0);
    expect(rows[1]).toEqual({ attempts: 0, status: "PENDING" });
  });

  test("in an outage it burns nothing, asks with ten events at most, says why, and goes on by itself", async () => {
    await events(200, 1);
    let isAway = true;
    const asked: number[] = [];
    const relay = startRelay(async (messages) => {
      if (!isAway) return await Promise.resolve(accept(messages));
      asked.push(messages.length);
      return await Promise.resolve(
        messages.map(({ messageId }) => ({
          kind: "outage" as const,
          messageId,
          error: "ECONNREFUSED: the broker is away",
        })),
      );
    });
    await eventually(() => expect(asked.length).toBeGreaterThan(3));
    await eventually(() =>
      expect(relay.summaries.at(-1)).toMatchObject({
        outage: "ECONNREFUSED: the broker is away",
        published: 0,
      }),
    );
    expect(asked.slice(3).every((size) => size <= 10)).toBe(true);
    isAway = false;
    await eventually(async () => expect(await unpublished()).toBe(0), { timeoutMs: 20_000 });
    expect(await relay.stop()).toMatchObject({ published: 200, failed: 0, outage: null });
    const [row] = await database().admin<{ attempts: number; claims: number }>(
      "SELECT max(attempts) AS attempts, max(claims) AS claims FROM remit.outbox",
    );
    expect(row).toEqual({ attempts: 0, claims: 1 });
  });

  test("a rate bounds what goes out within each second", async () => {
    await events(60, 1);
    const at: number[] = [];
    const relay = startRelay(
      async (messages) => {
        at.push(...messages.map(() => performance.now()));
        return await Promise.resolve(accept(messages));
      },
      { eventsPerSecondMax: 40 },
    );
    await eventually(async () => expect(await unpublished()).toBe(0));
    await relay.stop();
    // A slice of a second more than the rate may fall into one second: 40 / 5.
    for (const start of at) {
      expect(at.filter((time) => time >= start && time < start + 1_000).length).toBeLessThanOrEqual(
        48,
      );
    }
  });

  test("ends with an error that is no outage, after what is in flight has ended", async () => {
    await events(1, 1);
    const called = Promise.withResolvers<undefined>();
    const relay = startRelay(async () => {
      called.resolve(undefined);
      await Promise.resolve();
      throw new TypeError("a bug");
    });
    await called.promise;
    await expect(relay.stop()).rejects.toThrow("a bug");
  });
});
