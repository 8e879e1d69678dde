import { randomUUID } from "node:crypto";
import { Client } from "pg";
import { v7 as uuidv7 } from "uuid";
import { claimBatch, claimSuspectBatch } from "../../src/activities/publish-outbox-batch.ts";
import type { BatchDependencies, BatchResult } from "../../src/activities/publish-outbox-batch.ts";
import { claimRows, cursorAtStart, markPublished } from "../../src/database/outbox-queries.ts";
import { outboxStatus } from "../../src/database/outbox-view-queries.ts";
import type { Claim, ClaimCursor, ClaimedRow } from "../../src/database/outbox-queries.ts";
import type { OutgoingMessage, Publisher } from "../../src/messaging/sns-publisher.ts";
import { emptyOutbox, useDatabase } from "../support/database.ts";
import { relayOnce as relayOnceOn } from "../support/relay-once.ts";
import { scriptedBroker } from "../support/scripted-broker.ts";

const database = useDatabase();
const ALL = { fromShard: 0, toShard: 63, cursor: cursorAtStart(0) };

beforeEach(async () => {
  await emptyOutbox(database());
});

async function events(aggregateId: string, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let index = 0; index < count; index += 1) {
    const id = uuidv7();
    ids.push(id);
    await database().app.pool.query(
      "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'thing', $2, 'thing.changed', $3)",
      [id, aggregateId, JSON.stringify({ id, big: "9007199254740993" })],
    );
  }
  return ids;
}

async function claim(
  overrides: { leaseMs?: number; rowsMax?: number } = {},
): Promise<ClaimedRow[] & { token?: string }> {
  const leaseToken = randomUUID();
  const { rows } = await claimRows(database().app, {
    ...ALL,
    rowsMax: 100,
    rowsPerAggregateMax: 10,
    leaseToken,
    leaseMs: 10_000,
    ...overrides,
  });
  return Object.assign([...rows], { token: leaseToken });
}

async function row(id: string): Promise<Record<string, unknown> | undefined> {
  const [found] = await database().admin<Record<string, unknown>>(
    "SELECT status, claims, attempts, broker_message_id, last_error, lease_token FROM remit.outbox WHERE id = $1",
    [id],
  );
  return found;
}

const RANGE = { ...ALL, rowsMax: 100 };

function relay(publisher: Publisher): BatchDependencies {
  return { database: database().app, publisher, leaseMs: 10_000, sendTimeoutMs: 3_000 };
}

async function endLeases(): Promise<void> {
  await database().admin(
    "UPDATE remit.outbox SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL",
  );
}

async function relayOnce(broker: Publisher): Promise<BatchResult & { claimed: number }> {
  return await relayOnceOn(database(), broker);
}

describe("claimRows", () => {
  test("claims each row once: a second claim finds nothing while the lease lasts, all after it", async () => {
    await events("a", 3);
    expect(await claim({ leaseMs: 100 })).toHaveLength(3);
    expect(await claim()).toHaveLength(0);
    await endLeases();
    const again = await claim();
    expect(again.map(({ claims }) => claims)).toEqual([2, 2, 2]);
  });

  test("two claims at once share the rows and never the aggregates", async () => {
    for (let index = 0; index < 20; index += 1) await events(`agg-${index}`, 3);
    const claims = await Promise.all([claim({ rowsMax: 30 }), claim({ rowsMax: 30 })]);
    const ids = claims.flat().map(({ messageId }) => messageId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const rows of claims) {
      for (const [, versions] of Map.groupBy(rows, ({ aggregateId }) => aggregateId)) {
        const numbers = versions
          .map(({ aggregateVersion }) => Number(aggregateVersion))
          .toSorted((left, right) => left - right);
        expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, index) => index + 1));
      }
    }
  });

  test("claims at most what it is asked for", async () => {
    for (let index = 0; index < 30; index += 1) await events(`one-${index}`, 1);
    expect(await claim({ rowsMax: 7 })).toHaveLength(7);
  });

  test.each(["DEAD", "deferred", "leased"])(
    "a %s first row blocks its followers and nobody else",
    async (state) => {
      const [first] = await events("blocked", 3);
      const others = await events("free", 2);
      const change = {
        DEAD: "status = 'DEAD'",
        deferred: "next_attempt_at = now() + interval '1 hour'",
        leased: `lease_token = '${randomUUID()}', lease_until = now() + interval '1 hour'`,
      }[state];
      await database().admin(`UPDATE remit.outbox SET ${change} WHERE id = $1`, [first]);
      expect((await claim()).map(({ messageId }) => messageId).toSorted()).toEqual(
        others.toSorted(),
      );
    },
  );

  test("a later event is never visible before an earlier one that isn't committed", async () => {
    const slow = new Client({ connectionString: database().url });
    const fast = new Client({ connectionString: database().url });
    await Promise.all([slow.connect(), fast.connect()]);
    const insert =
      "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'thing', 'raced', 'thing.changed', '{}')";
    await slow.query("BEGIN");
    await slow.query(insert, [uuidv7()]);
    const second = fast.query(insert, [uuidv7()]);
    expect(await claim()).toHaveLength(0);
    await slow.query("COMMIT");
    await second;
    const versions = (await claim()).map(({ aggregateVersion }) => aggregateVersion).toSorted();
    await Promise.all([slow.end(), fast.end()]);
    expect(versions).toEqual(["1", "2"]);
  });

  test("goes on behind thousands of blocked aggregates, although its walk is bounded", async () => {
    await database().admin(
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
       SELECT uuidv7(), 'aaa', 'blocked-' || n, 'thing.changed', '{}' FROM generate_series(1, 12000) n`,
    );
    await database().admin("UPDATE remit.outbox SET status = 'DEAD'");
    const due = await events("due", 1);
    const found: string[] = [];
    let cursor: ClaimCursor | null = cursorAtStart(0);
    let claims = 0;
    while (cursor !== null) {
      const claimed: Claim = await claimRows(database().app, {
        ...ALL,
        cursor,
        rowsMax: 100,
        rowsPerAggregateMax: 10,
        leaseToken: randomUUID(),
        leaseMs: 10_000,
      });
      found.push(...claimed.rows.map(({ messageId }) => messageId));
      cursor = claimed.next;
      claims += 1;
    }
    expect(found).toEqual(due);
    expect(claims).toBe(3);
  });

  test("the payload goes out as it is stored, digit by digit", async () => {
    const [id] = await events("digits", 1);
    const [claimed] = await claim();
    const [stored] = await database().admin<{ payload: string }>(
      "SELECT payload::text AS payload FROM remit.outbox WHERE id = $1",
      [id],
    );
    expect(claimed?.payload).toBe(stored?.payload);
  });

  test("reads the partial index and the row's own page only, with statistics from an empty queue", async () => {
    await database().admin("ANALYZE remit.outbox");
    await database().admin(
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
       SELECT gen_random_uuid(), 'thing', 'many-' || n, 'thing.changed', '{}' FROM generate_series(1, 20000) n`,
    );
    const { captureClaimPlan } = await import("../support/claim-plan.ts");
    const nodes = await captureClaimPlan(database().app);
    expect(
      nodes.filter(({ relation }) => relation === "outbox").map(({ node }) => node),
    ).not.toContain("Seq Scan");
    const indexes = new Set(nodes.flatMap(({ index }) => (index === undefined ? [] : [index])));
    expect([...indexes]).toEqual(["outbox_open_idx"]);
  });
});

describe("markPublished", () => {
  test("marks under its lease only: a token that was taken over touches nothing", async () => {
    const [id = ""] = await events("fenced", 1);
    const first = await claim({ leaseMs: 50 });
    await endLeases();
    const second = await claim();
    const receipt = [{ messageId: id, brokerMessageId: "late" }];
    expect(await markPublished(database().app, receipt, first.token ?? "")).toEqual([]);
    expect(await row(id)).toMatchObject({ status: "PENDING", broker_message_id: null });
    expect(await markPublished(database().app, receipt, second.token ?? "")).toEqual([
      { messageId: id, aggregateId: "fenced", latencySeconds: expect.any(Number) as number },
    ]);
    expect(await row(id)).toMatchObject({
      status: "PUBLISHED",
      broker_message_id: "late",
      lease_token: null,
    });
  });
});

describe("publishOutboxBatch", () => {
  test("sends each aggregate's events in order and marks them with the broker's receipts", async () => {
    const expected = await events("ordered", 4);
    await events("other", 4);
    const broker = scriptedBroker();
    expect(await relayOnce(broker)).toMatchObject({
      claimed: 8,
      published: 8,
      failed: 0,
      outage: null,
    });
    expect(broker.sent.filter((id) => expected.includes(id))).toEqual(expected);
    expect(await row(expected[0] ?? "")).toMatchObject({
      status: "PUBLISHED",
      broker_message_id: `sns-${expected[0]}`,
      attempts: 0,
    });
  });

  test("a message at fault counts an attempt and holds back its followers, nobody else", async () => {
    const [bad = "", follower = ""] = await events("bad", 2);
    const good = await events("good", 2);
    const broker = scriptedBroker(({ messageId }) => (messageId === bad ? "fault" : "accepted"));
    expect(await relayOnce(broker)).toMatchObject({ published: 2, failed: 1, outage: null });
    expect(broker.sent.toSorted()).toEqual(good.toSorted());
    expect(await row(bad)).toMatchObject({ status: "PENDING", attempts: 1, lease_token: null });
    expect(await row(follower)).toMatchObject({
      status: "PENDING",
      attempts: 0,
      claims: 0,
      lease_token: null,
    });
  });

  test("a message at fault five times is DEAD with its evidence and blocks its aggregate", async () => {
    const [bad = "", follower = ""] = await events("poison", 2);
    const broker = scriptedBroker(({ messageId }) => (messageId === bad ? "fault" : "accepted"));
    for (let attempt = 0; attempt < 5; attempt += 1) {
      await database().admin("UPDATE remit.outbox SET next_attempt_at = '-infinity'");
      await relayOnce(broker);
    }
    expect(await row(bad)).toMatchObject({
      status: "DEAD",
      attempts: 5,
      last_error: "fault on purpose",
    });
    expect(await relayOnce(broker)).toMatchObject({ claimed: 0 });
    expect(await row(follower)).toMatchObject({ status: "PENDING", claims: 0 });
    expect(await outboxStatus(database().app)).toMatchObject({ pending: 1, dead: 1, skipped: 0 });
  });

  test.each(["outage", "throttled"] as const)(
    "an %s burns no attempt and gives every claim back",
    async (kind) => {
      const ids = await events("patient", 3);
      expect(await relayOnce(scriptedBroker(() => kind))).toMatchObject({
        published: 0,
        failed: 0,
        outage: `${kind} on purpose`,
      });
      for (const id of ids) {
        expect(await row(id)).toMatchObject({
          status: "PENDING",
          attempts: 0,
          claims: 0,
          lease_token: null,
        });
      }
      expect(await relayOnce(scriptedBroker())).toMatchObject({ published: 3 });
    },
  );

  test("a row that meets silence while others get through is at fault itself", async () => {
    const [silent = ""] = await events("silent", 1);
    await events("loud", 1);
    const broker = scriptedBroker(({ messageId }) =>
      messageId === silent ? "outage" : "accepted",
    );
    expect(await relayOnce(broker)).toMatchObject({ published: 1, failed: 1, outage: null });
    expect(await row(silent)).toMatchObject({ status: "PENDING", attempts: 1 });
  });

  test("a broker that goes away in the middle of a batch burns no attempt", async () => {
    const [silent = ""] = await events("silent", 1);
    await events("loud", 1);
    const broker = scriptedBroker(
      ({ messageId }) => (messageId === silent ? "outage" : "accepted"),
      { isReachable: false },
    );
    expect(await relayOnce(broker)).toMatchObject({
      published: 1,
      failed: 0,
      outage: "outage on purpose",
    });
    expect(await row(silent)).toMatchObject({ status: "PENDING", attempts: 0, claims: 0 });
  });

  test("of a hundred rows in flight at each crash, the one that kills its worker becomes DEAD and the others go out", async () => {
    for (let index = 0; index < 20; index += 1) await events(`crowd-${index}`, 2);
    const [killer = "", follower = ""] = await events("killer", 2);
    const broker = scriptedBroker();
    const deadly: Publisher = {
      ...broker,
      publish: async (messages) => {
        if (messages.some(({ messageId }) => messageId === killer)) throw new Error("killed");
        return await broker.publish(messages);
      },
    };
    let crashes = 0;
    for (let step = 0; step < 60; step += 1) {
      await relayOnce(deadly).catch(() => (crashes += 1));
      await endLeases();
    }
    expect(await row(killer)).toMatchObject({ status: "DEAD" });
    expect((await row(killer))?.["last_error"]).toMatch(
      /claimed 16 times, the last 12 of them alone/,
    );
    expect(await row(follower)).toMatchObject({ status: "PENDING" });
    expect(broker.sent).toHaveLength(40);
    expect(crashes).toBe(3 + 12);
  });

  test("a relay that dies again and again right after its claim, whatever it claimed, buries nobody", async () => {
    const ids: string[] = [];
    for (let index = 0; index < 8; index += 1) ids.push(...(await events(`bystander-${index}`, 2)));
    const broker = scriptedBroker();
    for (let crash = 0; crash < 40; crash += 1) {
      const batch = await claimBatch(relay(broker), RANGE);
      if (batch.rows.length === 0) await claimSuspectBatch(relay(broker), RANGE);
      await endLeases();
    }
    for (let step = 0; step < 60; step += 1) await relayOnce(broker);

    const rows = await Promise.all(ids.map(row));
    expect(new Set(rows.map((one) => one?.["status"]))).toEqual(new Set(["PUBLISHED"]));
    expect(broker.sent.toSorted()).toEqual(ids.toSorted());
  });

  test.each([
    ["claims = 2147483647"],
    ["claims = 2147483647, attempts = 2147483647"],
    ["claims = 1000000"],
  ])("a row whose counters are at their end stops nobody else: %s", async (counters) => {
    const [odd = ""] = await events("odd", 1);
    const [other] = await events("other", 1);
    await database().admin(`UPDATE remit.outbox SET ${counters} WHERE id = '${odd}'`);
    const broker = scriptedBroker();
    for (let step = 0; step < 3; step += 1) await relayOnce(broker);
    expect(broker.sent).toContain(other);
    expect(await row(odd)).toMatchObject({
      status: expect.stringMatching(/^(DEAD|PUBLISHED)$/) as string,
    });
  });

  test("a row under suspicion is claimed alone, under a lease that doubles up to half a minute, while others go out", async () => {
    const [suspect = ""] = await events("suspect", 1);
    await database().admin(`UPDATE remit.outbox SET claims = 3 WHERE id = '${suspect}'`);
    const leases: number[] = [];
    for (let claim = 0; claim < 5; claim += 1) {
      await events(`other-${claim}`, 1);
      const broker = scriptedBroker();
      const ordinary = await claimBatch(relay(broker), RANGE);
      expect(ordinary).toMatchObject({ hasSuspects: true, rows: [{ aggregateVersion: "1" }] });
      expect(ordinary.rows.map(({ messageId }) => messageId)).not.toContain(suspect);
      const alone = await claimSuspectBatch(relay(broker), RANGE);
      expect(alone?.rows.map(({ messageId }) => messageId)).toEqual([suspect]);
      const [found] = await database().admin<{ seconds: number }>(
        `SELECT round(extract(epoch FROM lease_until - clock_timestamp()))::int AS seconds FROM remit.outbox WHERE id = '${suspect}'`,
      );
      leases.push(found?.seconds ?? 0);
      await endLeases();
      await database().admin(
        "UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'x', published_at = now(), lease_token = NULL, lease_until = NULL WHERE aggregate_id LIKE 'other%'",
      );
    }
    expect(leases).toEqual([10, 20, 30, 30, 30]);
  });

  test("a relay that dies between send and mark publishes again after the lease, and nothing is lost", async () => {
    const ids = await events("dies", 3);
    const died = scriptedBroker();
    const dying = {
      ...died,
      publish: async (messages: readonly OutgoingMessage[]) => {
        await died.publish(messages);
        throw new Error("killed before the mark");
      },
    };
    await expect(relayOnce(dying)).rejects.toThrow("killed before the mark");
    expect(died.sent).toEqual([ids[0]]);
    await endLeases();
    const next = scriptedBroker();
    await relayOnce(next);
    expect(next.sent).toEqual(ids);
  });
});
