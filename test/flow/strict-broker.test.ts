import { PublishBatchCommand } from "@aws-sdk/client-sns";
import type { PublishBatchRequestEntry, SNSClient } from "@aws-sdk/client-sns";
import { GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import type { BatchResult } from "../../src/activities/publish-outbox-batch.ts";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import { createSqsReceiver } from "../../src/messaging/sqs-receiver.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";
import type { Topology } from "../../src/messaging/topology.ts";
import { startLedgerIntake } from "../../src/worker/ledger-intake.ts";
import { emptyOutbox, useDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { relayOnce as relayOnceOn } from "../support/relay-once.ts";
import { testServices } from "../support/services.ts";
import { startStrictBroker } from "../support/strict-broker.ts";
import type { StrictBroker } from "../support/strict-broker.ts";

/** The relay and the intake against a broker that refuses what AWS refuses, and fails as AWS fails. */
const database = useDatabase();
const CREDENTIALS = { accessKeyId: "local", secretAccessKey: "local" };
const SEND_TIMEOUT_MS = 700;
let broker: StrictBroker;
let topology: Topology;
let sns: SNSClient;

beforeAll(async () => {
  const { REMIT_TEST_AWS_ENDPOINT_URL: endpointUrl } = testServices();
  const target = { endpointUrl, region: "us-east-1", credentials: CREDENTIALS };
  topology = await ensureTopology(target, { prefix: `strict-${process.pid}` });
});
beforeEach(async () => {
  broker = await startStrictBroker(testServices().REMIT_TEST_AWS_ENDPOINT_URL);
  sns = createSnsClient(target(), { requestTimeoutMs: SEND_TIMEOUT_MS });
  await emptyOutbox(database());
});
afterEach(async () => {
  sns.destroy();
  await broker.close();
});

function target(): { endpointUrl: string; region: string; credentials: typeof CREDENTIALS } {
  return { endpointUrl: broker.url, region: "us-east-1", credentials: CREDENTIALS };
}

async function events(count: number, payload = "{}"): Promise<void> {
  await database().admin(
    `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
     SELECT uuidv7(), 'thing', 'thing-' || n, 'thing.changed', $2 FROM generate_series(0, $1::int - 1) n`,
    [count, payload],
  );
}

async function relayOnce(): Promise<BatchResult> {
  await database().admin(
    "UPDATE remit.outbox SET next_attempt_at = '-infinity' WHERE status = 'PENDING'",
  );
  const publisher = createSnsPublisher(sns, topology.topicArn);
  return await relayOnceOn(database(), publisher, { sendTimeoutMs: SEND_TIMEOUT_MS });
}

/** How many rows stand where: status and attempts. */
async function standing(): Promise<Record<string, number>> {
  const rows = await database().admin<{ at: string; count: string }>(
    "SELECT status || ' ' || attempts AS at, count(*) AS count FROM remit.outbox GROUP BY 1",
  );
  return Object.fromEntries(rows.map(({ at, count }) => [at, Number(count)]));
}

function published(): number {
  return broker.calls.filter(({ action }) => action === "PublishBatch").length;
}

describe("what the stand-in refuses as AWS does", () => {
  const good: PublishBatchRequestEntry = {
    Id: "0",
    Message: "{}",
    MessageAttributes: { type: { DataType: "String", StringValue: "thing.changed" } },
  };
  const attributes = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, nth) => [
        `a${nth}`,
        { DataType: "String", StringValue: "x" },
      ]),
    );
  test.each<[string, PublishBatchRequestEntry[], string | null]>([
    ["a good entry", [good], null],
    [
      "eleven entries",
      Array.from({ length: 11 }, (_, id) => ({ ...good, Id: `${id}` })),
      "TooManyEntries",
    ],
    ["two of one id", [good, good], "NotDistinct"],
    ["an id with a colon", [{ ...good, Id: "a:1" }], "InvalidBatchEntryId"],
    [
      "more than 256 KiB with the attributes",
      [{ ...good, Message: "x".repeat(262_130) }],
      "TooLong",
    ],
    ["a control character", [{ ...good, Message: "a\u0001" }], "InvalidParameter"],
    ["U+FFFF", [{ ...good, Message: "a\uFFFF" }], "InvalidParameter"],
    ["an emoji", [{ ...good, Message: "🙂" }], null],
    ["an empty message", [{ ...good, Message: "" }], "InvalidParameter"],
    ["eleven attributes", [{ ...good, MessageAttributes: attributes(11) }], "InvalidParameter"],
    ["ten attributes", [{ ...good, MessageAttributes: attributes(10) }], null],
    [
      "an empty attribute",
      [{ ...good, MessageAttributes: { a: { DataType: "String", StringValue: "" } } }],
      "InvalidParameterValue",
    ],
    ["a group id on a standard topic", [{ ...good, MessageGroupId: "g" }], "InvalidParameter"],
  ])("%s", async (_, entries, refusal) => {
    const met = await sns
      .send(
        new PublishBatchCommand({
          TopicArn: topology.topicArn,
          PublishBatchRequestEntries: entries,
        }),
      )
      .then(({ Successful = [] }) => (Successful.length === entries.length ? null : "lost"))
      .catch((error: Error) => error.name);
    expect(met === null ? null : met.includes(refusal ?? "nothing")).toBe(
      refusal === null ? null : true,
    );
  });
});

describe("the relay", () => {
  test("meets none of these refusals with what the outbox takes: great payloads, odd texts, all in few calls", async () => {
    await events(7, JSON.stringify({ text: "x".repeat(120_000) }));
    await database().admin(
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload, headers)
       SELECT uuidv7(), 'odd', 'odd-' || n, 'thing.changed', jsonb_build_object('text', E'🙂 ü \\t \\u0001 \\u007f "\\\\" <&>'),
              '{"a": "1", "b": "2", "c": "3"}' FROM generate_series(1, 23) n`,
    );
    expect(await relayOnce()).toMatchObject({ published: 30, failed: 0, outage: null });
    // Three calls of odd ones at least, and of the great ones two fit into one.
    expect(published()).toBeLessThanOrEqual(8);
  });

  test("marks the seven of ten that were taken, counts the sender's fault, and tries the broker's again", async () => {
    await events(10);
    broker.next("PublishBatch", {
      kind: "failEntries",
      places: [2],
      code: "InvalidParameter",
      senderFault: true,
    });
    expect(await relayOnce()).toMatchObject({ published: 9, failed: 1, outage: null });
    expect(await standing()).toEqual({ "PUBLISHED 0": 9, "PENDING 1": 1 });
    await relayOnce();
    expect(await standing()).toEqual({ "PUBLISHED 0": 9, "PUBLISHED 1": 1 });
  });

  test("burns no attempt of the three of ten that the broker itself failed, and sends them at once", async () => {
    await events(10);
    const throttled = { code: "Throttling", senderFault: false } as const;
    broker.next("PublishBatch", { kind: "failEntries", places: [0, 4, 9], ...throttled });
    expect(await relayOnce()).toMatchObject({ published: 7, failed: 0 });
    expect(await standing()).toEqual({ "PUBLISHED 0": 7, "PENDING 0": 3 });
    expect(await relayOnce()).toMatchObject({ published: 3, failed: 0, outage: null });
  });

  test("finds the one entry that fails the whole call with 400: nine go out, one counts an attempt, in at most twelve calls", async () => {
    await events(9);
    await database().admin(
      `SET session_replication_role = replica;
       INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, shard)
       VALUES (uuidv7(), 'thing', 'poison', 1, 'thing.changed', '{"text": "\uFFFF"}', 0);
       SET session_replication_role = origin`,
    );
    expect(await relayOnce()).toMatchObject({ published: 9, failed: 1, outage: null });
    expect(await standing()).toEqual({ "PUBLISHED 0": 9, "PENDING 1": 1 });
    expect(published()).toBeLessThanOrEqual(12);
  });

  test.each([
    ["throttling", { kind: "refuse", status: 400, code: "Throttling" }],
    ["an error of the service", { kind: "refuse", status: 500, code: "InternalError" }],
    ["a service that is unavailable", { kind: "refuse", status: 503, code: "ServiceUnavailable" }],
    ["a denial that a policy caused", { kind: "refuse", status: 403, code: "AuthorizationError" }],
    ["a connection that ends", { kind: "drop" }],
    ["silence", { kind: "silence" }],
  ] as const)("burns nothing in %s, and says so", async (_, fault) => {
    await events(5);
    broker.next("PublishBatch", fault);
    const { published: sent, failed, outage } = await relayOnce();
    expect([sent, failed, outage === null]).toEqual([0, 0, false]);
    expect(await standing()).toEqual({ "PENDING 0": 5 });
    expect(await relayOnce()).toMatchObject({ published: 5, outage: null });
  });

  test("sends again under the same ids where the answer got lost", async () => {
    await events(3);
    broker.next("PublishBatch", { kind: "lostAnswer" });
    expect(await relayOnce()).toMatchObject({ published: 0, failed: 0 });
    expect(await relayOnce()).toMatchObject({ published: 3 });
    expect(await standing()).toEqual({ "PUBLISHED 0": 3 });
  });
});

describe("the intake", () => {
  test.each([
    ["the same message twice in one answer", { kind: "repeat" }],
    ["messages in another order", { kind: "reverse" }],
    ["an answer that comes late", { kind: "delay", ms: 300 }],
    ["a receive that is refused", { kind: "refuse", status: 503, code: "ServiceUnavailable" }],
    ["a receive whose connection ends", { kind: "drop" }],
  ] as const)("takes %s, starts each message and leaves an empty queue", async (_, fault) => {
    const ids = await ledgerMessages(6);
    broker.next("ReceiveMessage", fault);
    const polling = createSqsClient(target(), { requestTimeoutMs: 10_000 });
    const answering = createSqsClient(target(), { requestTimeoutMs: 2_000 });
    const started: string[] = [];
    const intake = startLedgerIntake({
      receiver: createSqsReceiver({ polling, answering, queueUrl: topology.ledgerQueueUrl }),
      startLedgerEntry: async ({ messageId }) => {
        started.push(messageId);
        return await Promise.resolve(true);
      },
      countDelivery: async () => await Promise.resolve(),
      probeTemporal: async () => await Promise.resolve(),
      report: () => undefined,
    });
    await eventually(() => expect(new Set(started)).toEqual(new Set(ids)));
    await intake.stop();
    expect(await waiting()).toBe(0);
    for (const client of [polling, answering]) client.destroy();
  });
});

/** Publishes messages that the ledger's subscription lets through. */
async function ledgerMessages(count: number): Promise<string[]> {
  const rows = await database().admin<{ id: string }>(
    `SELECT remit.new_message_id() AS id FROM generate_series(1, $1::int)`,
    [count],
  );
  const publisher = createSnsPublisher(sns, topology.topicArn);
  const results = await publisher.publish(
    rows.map(({ id }) => ({
      messageId: id,
      aggregateType: "payment",
      aggregateId: id,
      aggregateVersion: "1",
      type: "payment.created",
      payload: JSON.stringify({
        specversion: "1.0",
        id,
        source: "/remit",
        type: "payment.created",
        data: {},
      }),
      headers: { capture: "automatic" },
    })),
  );
  expect(results.map(({ kind }) => kind)).toEqual(rows.map(() => "accepted"));
  return rows.map(({ id }) => id);
}

async function waiting(): Promise<number> {
  const sqs = createSqsClient(target(), { requestTimeoutMs: 2_000 });
  const { Attributes = {} } = await sqs.send(
    new GetQueueAttributesCommand({
      QueueUrl: topology.ledgerQueueUrl,
      AttributeNames: ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    }),
  );
  sqs.destroy();
  return Object.values(Attributes).reduce((sum, count) => sum + Number(count), 0);
}
