import { SendMessageCommand } from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { v7 as uuidv7 } from "uuid";
import { setTimeout as delay } from "node:timers/promises";
import { createSqsClient } from "../../src/messaging/aws-clients.ts";
import type { IncomingMessage } from "../../src/messaging/envelope.ts";
import { openDeadLetters } from "../../src/messaging/dead-letters.ts";
import { createSqsReceiver } from "../../src/messaging/sqs-receiver.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";
import type { Topology } from "../../src/messaging/topology.ts";
import { startLedgerIntake } from "../../src/worker/ledger-intake.ts";
import type { Intake, IntakeEvent } from "../../src/worker/ledger-intake.ts";
import { eventually } from "../support/eventually.ts";
import { testServices } from "../support/services.ts";
import { startStrictBroker } from "../support/strict-broker.ts";
import type { StrictBroker } from "../support/strict-broker.ts";

/** What users of other consumers of SQS complained of (their numbers: docs/cases.md), tried on the intake with the real receiver. */
const CREDENTIALS = { accessKeyId: "local", secretAccessKey: "local" };
/** Longer than a long poll, and not by much: so a silent broker is noticed soon. */
const POLL_TIMEOUT_MS = 6_000;
let topology: Topology;
let broker: StrictBroker;
let clients: SQSClient[];
let intake: Intake | undefined;
let events: IntakeEvent[];

beforeEach(async () => {
  const endpointUrl = testServices().REMIT_TEST_AWS_ENDPOINT_URL;
  const region = "us-east-1";
  const prefix = `intake-${uuidv7().slice(-12)}`;
  topology = await ensureTopology({ endpointUrl, region, credentials: CREDENTIALS }, { prefix });
  broker = await startStrictBroker(endpointUrl);
  [events, clients, intake] = [[], [], undefined];
});
afterEach(async () => {
  await intake?.stop();
  for (const client of clients) client.destroy();
  await broker.close();
});

function client(requestTimeoutMs: number): SQSClient {
  const target = { endpointUrl: broker.url, region: "us-east-1", credentials: CREDENTIALS };
  const sqs = createSqsClient(target, { requestTimeoutMs });
  clients.push(sqs);
  return sqs;
}

/** Starts the intake; what it gives to Temporal goes to `start`, which answers whether it is new. */
function take(
  start: (message: IncomingMessage) => Promise<boolean>,
  countDelivery: (messageId: string) => void = () => undefined,
): void {
  intake = startLedgerIntake({
    receiver: createSqsReceiver({
      polling: client(POLL_TIMEOUT_MS),
      answering: client(2_000),
      queueUrl: topology.ledgerQueueUrl,
    }),
    startLedgerEntry: start,
    countDelivery: async (messageId) => await Promise.resolve(countDelivery(messageId)),
    probeTemporal: async () => await Promise.resolve(),
    report: (event) => events.push(event),
  });
}

function event(id = uuidv7(), more: object = {}): string {
  const type = "payment.created";
  return JSON.stringify({ specversion: "1.0", id, source: "/", type, data: {}, ...more });
}

async function send(...bodies: string[]): Promise<void> {
  const sqs = client(2_000);
  for (const MessageBody of bodies) {
    await sqs.send(new SendMessageCommand({ QueueUrl: topology.ledgerQueueUrl, MessageBody }));
  }
}

/** All that is in the ledger's queue, in hand or not. */
async function left(): Promise<number> {
  return (await openDeadLetters(client(2_000), topology.ledgerQueueUrl).status()).visible;
}

const reported = (): string[] =>
  events.map((met) => `${met.kind} ${"what" in met ? met.what : ""}`);

test.each([
  ["takes each poll and never answers", { kind: "silence" }],
  ["stops in the middle of each answer", { kind: "halfAnswer" }],
] as const)(
  "a broker that %s is noticed and said once, and is used again by itself when it answers",
  async (_, fault) => {
    broker.next("ReceiveMessage", fault, fault);
    const started: string[] = [];
    take(async ({ messageId }) => await Promise.resolve(started.push(messageId) > 0));
    await eventually(() => expect(intake?.away()).toBe("broker"), { timeoutMs: 12_000 });
    await send(event());
    await eventually(() => expect(started).toHaveLength(1), { timeoutMs: 12_000 });
    expect(intake?.away()).toBeNull();
    expect(reported()).toEqual(["away broker", "back broker"]);
  },
  40_000,
);

test("eight refused receives are reported once, with pauses between them; after them it goes on within seconds", async () => {
  const missing = { kind: "refuse", status: 400, code: "QueueDoesNotExist" } as const;
  broker.next("ReceiveMessage", ...Array.from({ length: 8 }, () => missing));
  const started: string[] = [];
  take(async ({ messageId }) => await Promise.resolve(started.push(messageId) > 0));
  await send(event());
  await eventually(() => expect(started).toHaveLength(1), { timeoutMs: 25_000 });
  expect(reported()).toEqual(["away broker", "back broker"]);
  const polls = broker.calls.filter(({ action }) => action === "ReceiveMessage");
  const span = (polls[7]?.atMs ?? 0) - (polls[0]?.atMs ?? 0);
  // Each of two pollers waits at least 50 ms more than nothing before each of its polls but the first.
  expect(span).toBeGreaterThanOrEqual(3 * 50);
}, 40_000);

test.each([
  ["throws", async () => await Promise.reject(new Error("away"))],
  ["rejects with a string", async () => await Promise.reject("away" as unknown as Error)],
  ["rejects with nothing", async () => await Promise.reject(undefined as unknown as Error)],
] as const)(
  "a start that %s leaves the message in the queue; it comes again, and only a start that succeeds deletes it",
  async (_, fail) => {
    let starts = 0;
    take(async () => {
      starts += 1;
      return starts === 1 ? await fail() : await Promise.resolve(true);
    });
    await send(event());
    await eventually(() => expect(starts).toBe(2), { timeoutMs: 15_000 });
    await eventually(async () => expect(await left()).toBe(0));
    const deletes = broker.calls.filter(({ action }) => action === "DeleteMessageBatch");
    expect(deletes.map(({ request }) => request.Entries?.length)).toEqual([1]);
    expect(reported()).toEqual(["away temporal", "back temporal"]);
  },
  40_000,
);

test("one slow start holds up none of the others: sixty are done before it", async () => {
  const ids = Array.from({ length: 61 }, () => uuidv7());
  const done: string[] = [];
  let letGo: () => void = () => undefined;
  const slow = new Promise<void>((resolve) => (letGo = resolve));
  take(async ({ messageId }) => {
    if (messageId === ids[3]) await slow;
    done.push(messageId);
    return true;
  });
  await send(...ids.map((id) => event(id)));
  await eventually(() => expect(new Set(done).size).toBe(60), { timeoutMs: 20_000 });
  // The slow one alone is still in hand.
  await eventually(async () => expect(await left()).toBe(1));
  letGo();
  await eventually(async () => expect(await left()).toBe(0));
}, 60_000);

test("stopped right after the last start it has deleted all that was started", async () => {
  const started: string[] = [];
  const ids = Array.from({ length: 25 }, () => uuidv7());
  await send(...ids.map((id) => event(id)));
  take(async ({ messageId }) => await Promise.resolve(started.push(messageId) > 0));
  while (new Set(started).size < 25) await delay(1);
  await intake?.stop();
  expect([started.toSorted(), await left()]).toEqual([ids.toSorted(), 0]);
}, 40_000);

test("a message delivered five times more is deleted each time, counted, and is no error", async () => {
  const [id, seen, counted] = [uuidv7(), new Set<string>(), [] as string[]];
  take(
    async ({ messageId }) => {
      const isNew = !seen.has(messageId);
      seen.add(messageId);
      return await Promise.resolve(isNew);
    },
    (messageId) => counted.push(messageId),
  );
  await send(...Array.from({ length: 6 }, () => event(id)));
  await eventually(() => expect(counted).toEqual(Array.from({ length: 5 }, () => id)));
  await eventually(async () => expect(await left()).toBe(0));
  expect(seen.size).toBe(1);
  const again = { kind: "again", messageId: id, receiveCount: 1 };
  expect(events).toEqual(Array.from({ length: 5 }, () => again));
}, 40_000);

test("raw and wrapped by SNS it is the same message; one that has Type and Message of its own isn't unwrapped", async () => {
  const taken: IncomingMessage[] = [];
  take(async (message) => await Promise.resolve(taken.push(message) > 0));
  const raw = event();
  const wrapped = {
    Type: "Notification",
    TopicArn: topology.topicArn,
    MessageId: "m",
    Message: raw,
  };
  const posing = event(uuidv7(), { Type: "Notification", TopicArn: "x", Message: raw });
  await send(raw, JSON.stringify(wrapped), posing);
  await eventually(() => expect(taken).toHaveLength(3));
  const payloads = taken.map(({ payload }) => payload).toSorted();
  expect(payloads).toEqual([raw, raw, posing].toSorted());
}, 40_000);

test("each receive asks for the receive count, for no more than ten, and for a long poll", async () => {
  take(async () => await Promise.resolve(true));
  await eventually(() => expect(broker.calls.length).toBeGreaterThanOrEqual(2));
  expect(broker.calls.map(({ request }) => request)).toEqual(
    broker.calls.map(() => ({
      QueueUrl: topology.ledgerQueueUrl,
      MaxNumberOfMessages: 10,
      WaitTimeSeconds: 5,
      VisibilityTimeout: 30,
      MessageSystemAttributeNames: ["ApproximateReceiveCount"],
    })),
  );
}, 40_000);
