import type { SNSClient } from "@aws-sdk/client-sns";
import { GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import type { BatchResult } from "../../src/activities/publish-outbox-batch.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import { parseMessage } from "../../src/messaging/envelope.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import { createSqsReceiver } from "../../src/messaging/sqs-receiver.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";
import type { Topology } from "../../src/messaging/topology.ts";
import { startLedgerIntake } from "../../src/worker/ledger-intake.ts";
import {
  aPayment,
  createdMessage,
  emptyOutbox,
  fundedAccount,
  useDatabase,
} from "../support/database.ts";
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

/** Of a signature's time: 20261201T130500Z. */
function msOf(signedAt: string): number {
  return Date.parse(signedAt.replace(/^(....)(..)(..T..)(..)(..Z)$/, "$1-$2-$3:$4:$5"));
}

function published(): number {
  return broker.calls.filter(({ action }) => action === "PublishBatch").length;
}

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
    const failures = [{ place: 2, code: "InvalidParameter", senderFault: true }];
    broker.next("PublishBatch", { kind: "failEntries", failures });
    expect(await relayOnce()).toMatchObject({ published: 9, failed: 1, outage: null });
    expect(await standing()).toEqual({ "PUBLISHED 0": 9, "PENDING 1": 1 });
    await relayOnce();
    expect(await standing()).toEqual({ "PUBLISHED 0": 9, "PUBLISHED 1": 1 });
  });

  test("tells three failures of one answer apart: seven marked, the sender's counted, the broker's two tried again", async () => {
    await events(10);
    const throttled = { code: "Throttling", senderFault: false };
    const failures = [
      { place: 1, code: "InvalidParameter", senderFault: true },
      { place: 5, ...throttled },
      { place: 8, ...throttled },
    ];
    broker.next("PublishBatch", { kind: "failEntries", failures });
    expect(await relayOnce()).toMatchObject({ published: 7, failed: 1 });
    expect(await standing()).toEqual({ "PUBLISHED 0": 7, "PENDING 0": 2, "PENDING 1": 1 });
    expect(await relayOnce()).toMatchObject({ published: 3, failed: 0, outage: null });
    // Ten in the first call, three in the second: what was taken isn't sent again.
    expect(broker.calls.map(({ entries }) => entries)).toEqual([10, 3]);
  });

  test("burns no attempt of the three of ten that the broker itself failed, and sends them at once", async () => {
    await events(10);
    const throttled = { code: "Throttling", senderFault: false };
    const failures = [0, 4, 9].map((place) => ({ place, ...throttled }));
    broker.next("PublishBatch", { kind: "failEntries", failures });
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
    ["an answer that stops in its middle", { kind: "halfAnswer" }],
    ["too many requests", { kind: "refuse", status: 429, code: "TooManyRequestsException" }],
    ["a server whose clock is 20 minutes ahead", { kind: "skewedClock", aheadMs: 1_200_000 }],
  ] as const)("burns nothing in %s, and says so", async (_, fault) => {
    await events(5);
    broker.next("PublishBatch", fault);
    const { published: sent, failures, outage } = await relayOnce();
    expect([sent, failures, outage === null]).toEqual([0, [], false]);
    expect(await standing()).toEqual({ "PENDING 0": 5 });
    expect(await relayOnce()).toMatchObject({ published: 5, outage: null });
  });

  test("signs by the clock of the server once that has told it", async () => {
    await events(1);
    broker.next("PublishBatch", { kind: "skewedClock", aheadMs: 1_200_000 });
    await relayOnce();
    expect(await relayOnce()).toMatchObject({ published: 1, outage: null });
    const [first, second] = broker.calls.map(({ signedAt, atMs }) => msOf(signedAt) - atMs);
    expect(Math.abs(first ?? 0)).toBeLessThan(10_000);
    expect(Math.abs((second ?? 0) - 1_200_000)).toBeLessThan(10_000);
  });
});

describe("what the outbox takes and what it refuses", () => {
  test("the greatest event with the greatest attributes passes, alone and beside others; one byte more is refused by the outbox", async () => {
    const greatest = `jsonb_build_object('text', repeat('x', 240000 - 12))`;
    const insert = (payload: string, id: string): string =>
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload, headers)
       SELECT uuidv7(), repeat('t', 64), repeat('i', 126) || '${id}' || n, repeat('e', 128), ${payload},
              jsonb_build_object('a', repeat('v', 1300), 'b', repeat('v', 1300), 'c', repeat('v', 1300))
         FROM generate_series(1, 3) n`;
    await database().admin(insert(greatest, "g"));
    await database().admin(insert("'{}'", "s"));
    expect(await relayOnce()).toMatchObject({ published: 6, failed: 0, outage: null });
    // Three of its own, and three of the writer; SQS drops what has more than ten, and a tracing agent adds two.
    expect(Math.max(...broker.calls.map(({ attributes }) => attributes))).toBe(6);
    const tooGreat = `jsonb_build_object('text', repeat('x', 240001 - 12))`;
    await expect(database().admin(insert(tooGreat, "t"))).rejects.toMatchObject({
      constraint: "outbox_payload_check",
    });
  });
});

describe("a payment on its way", () => {
  const ODD = '🙂 ü \t \n "\\" <&> \u2028 \u007f';

  test("whose acknowledgement got lost goes out twice under one id, arrives byte for byte, and is booked once", async () => {
    const { app, admin } = database();
    await fundedAccount(database(), "alice", { amountMinor: 100_000n });
    await fundedAccount(database(), "shop", { kind: "merchant" });
    await emptyOutbox(database());
    const input = aPayment({ description: ODD });
    expect((await recordPayment(app, input)).outcome).toBe("recorded");
    const { messageId, payload } = await createdMessage(admin, input.paymentId);
    broker.next("PublishBatch", { kind: "lostAnswer" });
    expect(await relayOnce()).toMatchObject({ published: 0, failed: 0 });
    expect(await relayOnce()).toMatchObject({ published: 1 });

    const bodies = await taken(2);
    expect(bodies).toEqual([payload, payload]);
    const outcomes = [];
    for (const body of bodies) {
      const parsed = parseMessage(body);
      if (!parsed.ok) throw new Error(parsed.reason);
      expect(parsed.message.messageId).toBe(messageId);
      const { outcome, repeated } = await applyLedgerEntries(app, parsed.message);
      outcomes.push([outcome, repeated]);
    }
    expect(outcomes).toEqual([
      ["booked", false],
      ["booked", true],
    ]);
    const booked = await admin("SELECT id FROM remit.ledger_transactions WHERE message_id = $1", [
      messageId,
    ]);
    expect(booked).toHaveLength(1);
  });
});

describe("the intake", () => {
  test.each([
    ["the same message twice in one answer", { kind: "repeat" }],
    ["a message whose first receipt is no longer good", { kind: "repeatOutdated" }],
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

/** Takes so many messages out of the ledger's queue. */
async function taken(count: number): Promise<string[]> {
  const sqs = createSqsClient(target(), { requestTimeoutMs: 10_000 });
  const queueUrl = topology.ledgerQueueUrl;
  const receiver = createSqsReceiver({ polling: sqs, answering: sqs, queueUrl });
  const bodies: string[] = [];
  while (bodies.length < count) {
    const received = await receiver.receive(10);
    if (received.length === 0) break;
    bodies.push(...received.map(({ body }) => body));
    await receiver.delete(received.map(({ receiptHandle }) => receiptHandle));
  }
  sqs.destroy();
  return bodies;
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
