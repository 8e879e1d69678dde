import { workflowIds } from "../../src/domain/ids.ts";
import type { RelayRange } from "../../src/domain/ids.ts";
import { shardRanges, startRelays } from "../../src/worker/relay-ranges.ts";
import type { RelayState } from "../../src/workflows/messages.ts";

const RUNNING: RelayState = {
  mode: "running",
  reason: null,
  since: "2026-12-01T00:00:00.000Z",
  eventsPerSecondMax: null,
  published: 12,
  lostLeases: 1,
};

/** Temporal with these relays running; remembers what it was asked, in order. */
function temporalWith(relays: readonly { range: RelayRange; state: RelayState }[]) {
  const asked: string[] = [];
  const started = new Map<string, RelayState | null>();
  const idOf = workflowIds.outboxRelay;
  return {
    asked,
    started,
    runningRelays: async () => await Promise.resolve(relays.map(({ range }) => range)),
    relayState: async (range: RelayRange) => {
      const found = relays.find((relay) => idOf(relay.range) === idOf(range));
      if (found === undefined) throw new Error("no such relay");
      return await Promise.resolve(found.state);
    },
    startRelay: async (range: RelayRange, state: RelayState | null) => {
      asked.push(`start ${idOf(range)}`);
      started.set(idOf(range), state);
      await Promise.resolve();
    },
    drainRelay: async (range: RelayRange) => {
      asked.push(`drain ${idOf(range)}`);
      await Promise.resolve();
    },
  };
}

describe("shardRanges", () => {
  test.each([1, 2, 3, 7, 64])("%i ranges cover each of the 64 shards once", (count) => {
    const shards = shardRanges(count).flatMap(({ fromShard, toShard }) =>
      Array.from({ length: toShard - fromShard + 1 }, (_, index) => fromShard + index),
    );
    expect(shards).toEqual(Array.from({ length: 64 }, (_, shard) => shard));
  });
});

describe("startRelays", () => {
  test("starts each range at first, and asks for the same ones again without harm", async () => {
    const temporal = temporalWith([]);
    expect(await startRelays(temporal, 2)).toBe(2);
    expect(temporal.asked).toEqual(["start outbox-relay:0-31", "start outbox-relay:32-63"]);
    expect([...temporal.started.values()]).toEqual([null, null]);
  });

  test("another number of ranges starts the new ones first and drains the old ones after it", async () => {
    const temporal = temporalWith([{ range: { fromShard: 0, toShard: 63 }, state: RUNNING }]);
    await startRelays(temporal, 2);
    expect(temporal.asked).toEqual([
      "start outbox-relay:0-31",
      "start outbox-relay:32-63",
      "drain outbox-relay:0-63",
    ]);
  });

  test("a pause and a rate pass to those that take over", async () => {
    const paused: RelayState = {
      ...RUNNING,
      mode: "paused",
      reason: "broker maintenance",
      eventsPerSecondMax: 50,
    };
    const temporal = temporalWith([{ range: { fromShard: 0, toShard: 63 }, state: paused }]);
    await startRelays(temporal, 2);
    expect(temporal.started.get("outbox-relay:32-63")).toEqual({
      ...paused,
      published: 0,
      lostLeases: 0,
    });
  });

  test("a pause of any of those that it replaces counts, whatever the others do", async () => {
    const draining: RelayState = { ...RUNNING, mode: "draining", reason: "drained on request" };
    const paused: RelayState = { ...RUNNING, mode: "paused", reason: "broker maintenance" };
    const temporal = temporalWith([
      { range: { fromShard: 0, toShard: 20 }, state: draining },
      { range: { fromShard: 21, toShard: 63 }, state: paused },
    ]);
    await startRelays(temporal, 1);
    expect(temporal.started.get("outbox-relay:0-63")).toMatchObject({
      mode: "paused",
      reason: "broker maintenance",
    });
  });

  test("where the state of the old one can't be read nothing is started that might ignore its pause", async () => {
    const temporal = {
      ...temporalWith([{ range: { fromShard: 0, toShard: 63 }, state: RUNNING }]),
      relayState: async () => await Promise.reject(new Error("no worker answers")),
    };
    await expect(startRelays(temporal, 2)).rejects.toThrow("no worker answers");
    expect(temporal.asked).toEqual([]);
  });
});
