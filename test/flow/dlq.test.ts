import type { ChildProcess } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { SendMessageCommand } from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { v7 as uuidv7 } from "uuid";
import type { LetterReport } from "../../src/activities/operate-dead-letters.ts";
import { listInbox } from "../../src/database/inbox-queries.ts";
import { createSqsClient } from "../../src/messaging/aws-clients.ts";
import { openDeadLetters } from "../../src/messaging/dead-letters.ts";
import type { DeadLetters } from "../../src/messaging/dead-letters.ts";
import { createdMessage, expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { endOfRemit, startRemit } from "../support/remit-command.ts";
import type { Ran } from "../support/remit-command.ts";
import { startStrictBroker } from "../support/strict-broker.ts";

/** The commands as an operator runs them, each a process, on a whole Remit. */
const flow = useFlow();
const REASON = ["--reason", "ledger database is back"];
let sqs: SQSClient;
let letters: DeadLetters;

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
  sqs = createSqsClient(flow().aws, { requestTimeoutMs: 10_000 });
  letters = openDeadLetters(sqs, flow().ledgerDlqUrl);
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});
afterAll(() => {
  sqs.destroy();
});

function start(words: readonly string[], env: Record<string, string> = {}): ChildProcess {
  return startRemit(flow(), ["dlq", ...words], env);
}

async function remit(words: readonly string[], env: Record<string, string> = {}): Promise<Ran> {
  return await endOfRemit(start(words, env));
}

/** Runs with --json and answers its one document. */
async function documentOf(
  words: readonly string[],
  { exit = 0, env = {} }: { exit?: number; env?: Record<string, string> } = {},
): Promise<{ letters: LetterReport[] } & Record<string, unknown>> {
  const ran = await remit([...words, "--json"], env);
  expect([ran.exit, ran.err]).toEqual([exit, ""]);
  return JSON.parse(ran.out) as { letters: LetterReport[] } & Record<string, unknown>;
}

async function bury(...bodies: string[]): Promise<void> {
  for (const body of bodies) {
    await sqs.send(new SendMessageCommand({ QueueUrl: flow().ledgerDlqUrl, MessageBody: body }));
  }
}

/** A settled payment's event, as the queue would hold it. */
async function settledEvent(): Promise<{ messageId: string; payload: string; paymentId: string }> {
  const { payments, database } = flow();
  const answer = await payments.pay(aRequest());
  await payments.waitForEnd(answer, { timeoutMs: 20_000 });
  const { paymentId } = answer;
  return { ...(await createdMessage(database.admin, paymentId)), paymentId };
}

function forged(id = uuidv7()): string {
  const source = "/x";
  return JSON.stringify({ specversion: "1.0", id, source, type: "payment.created", data: {} });
}

async function buried(): Promise<number> {
  return (await letters.status()).visible;
}

/** A look gives back what it saw after two seconds. */
async function untilAllCanBeSeen(): Promise<void> {
  await delay(2_500);
}

async function deliveriesOf(messageId: string): Promise<number> {
  const inbox = await listInbox(flow().database.app, { onlyErrors: false, limit: 100 });
  return inbox.find((row) => row.messageId === messageId)?.deliveries ?? 0;
}

async function bookingsOf(paymentId: string): Promise<number> {
  const rows = await flow().database.admin(
    "SELECT id FROM remit.ledger_transactions WHERE payment_id = $1",
    [paymentId],
  );
  return rows.length;
}

async function actions(): Promise<Record<string, unknown>[]> {
  return await flow().database.admin(
    "SELECT action, message_id AS id, actor, reason, details FROM remit.operator_actions ORDER BY created_at",
  );
}

async function emptyQueue(): Promise<void> {
  await untilAllCanBeSeen();
  await letters.visit(async (letter) => {
    await letters.remove(letter);
    return "removed";
  });
}

const doneOf = (reports: readonly LetterReport[]): string[] =>
  reports.map(({ done }) => done).toSorted();

describe("peek and status", () => {
  beforeEach(emptyQueue);

  test("see 25 letters of mixed kind, each once, with what is known and what to do; they remove none", async () => {
    const { messageId, payload, paymentId } = await settledEvent();
    await bury(payload, "no JSON", ...Array.from({ length: 23 }, () => forged()));
    const peeked = await documentOf(["peek", "--limit", "100"]);
    expect(new Set(peeked.letters.map(({ sqsMessageId }) => sqsMessageId)).size).toBe(25);
    expect(peeked.letters).toHaveLength(25);
    expect(peeked.letters.find((letter) => letter.messageId === messageId)).toMatchObject({
      type: "payment.created",
      paymentId,
      receiveCount: 1,
      wellFormed: true,
      reason: null,
      outboxStatus: "PUBLISHED",
      outcome: "booked",
      error: null,
      advice: "decided already (booked): discard it",
    });
    expect(peeked.letters.filter(({ wellFormed }) => !wellFormed)).toMatchObject([
      { messageId: null, type: null, reason: "the body is not JSON" },
    ]);
    expect(
      peeked.letters.filter(({ advice }) => advice.startsWith("no event of ours")),
    ).toHaveLength(23);
    await untilAllCanBeSeen();
    const { visible, oldestAgeSeconds } = await documentOf(["status"]);
    expect(visible).toBe(25);
    expect(oldestAgeSeconds).toBeGreaterThan(2);
    expect(oldestAgeSeconds).toBeLessThan(60);
  }, 60_000);
});

describe("redrive", () => {
  beforeEach(emptyQueue);

  test("sends under the same id what was published; a dry run does nothing; what is malformed, forged or never published stays; twice is once", async () => {
    const { messageId, payload, paymentId } = await settledEvent();
    await bury(payload, "no JSON", forged());
    const before = (await actions()).length;
    const tried = await documentOf(["redrive", "--all", "--dry-run"]);
    expect([doneOf(tried.letters), await buried()]).toEqual([["left", "left", "left"], 3]);
    expect((await actions()).length).toBe(before);
    expect(await deliveriesOf(messageId)).toBe(1);
    await untilAllCanBeSeen();
    // The malformed one and the forged one don't use up the limit.
    const redriven = await documentOf([
      "redrive",
      "--all",
      "--limit",
      "1",
      "--rate",
      "5",
      ...REASON,
    ]);
    expect(redriven.letters.filter(({ done }) => done === "redriven")).toMatchObject([
      { messageId },
    ]);
    expect((await actions()).slice(before)).toMatchObject([
      { action: "dlq.redrive", id: messageId, reason: REASON[1], details: { republication: 1 } },
    ]);
    await eventually(async () => expect(await deliveriesOf(messageId)).toBe(2));
    await untilAllCanBeSeen();
    const again = await documentOf(["redrive", "--all", ...REASON]);
    expect(doneOf(again.letters)).toEqual(["left", "left"]);
    expect([await buried(), await bookingsOf(paymentId)]).toEqual([2, 1]);
    expect(await deliveriesOf(messageId)).toBe(2);
  }, 60_000);

  test("interrupted in the middle it ends after the letter in hand, exits 130, and all others can be seen at once", async () => {
    const { messageId, payload, paymentId } = await settledEvent();
    await bury(...Array.from({ length: 12 }, () => payload));
    const child = start(["redrive", "--all", "--rate", "2", ...REASON, "--json"]);
    const ending = endOfRemit(child);
    await eventually(async () => expect(await deliveriesOf(messageId)).toBeGreaterThan(2), {
      timeoutMs: 20_000,
    });
    child.kill("SIGINT");
    const { exit, out, err } = await ending;
    const document = JSON.parse(out) as { letters: LetterReport[]; end: string };
    expect([exit, err, document.end]).toEqual([130, "", "interrupted"]);
    const sent = document.letters.filter(({ done }) => done === "redriven").length;
    expect(sent).toBeGreaterThanOrEqual(2);
    expect(sent).toBeLessThan(12);
    await untilAllCanBeSeen();
    const rest = await documentOf(["peek", "--limit", "100"]);
    expect(rest.letters).toHaveLength(12 - sent);
    await eventually(async () => expect(await deliveriesOf(messageId)).toBe(1 + sent));
    expect(await bookingsOf(paymentId)).toBe(1);
  }, 90_000);

  test("where SNS is away it stops, leaves the letter, and tells what was done before", async () => {
    const first = await settledEvent();
    const second = await settledEvent();
    await bury(first.payload, second.payload);
    const broker = await startStrictBroker(flow().aws.endpointUrl ?? "");
    broker.next("PublishBatch", { kind: "delay", ms: 1 }, { kind: "drop" });
    const env = { AWS_ENDPOINT_URL: broker.url };
    const problem = await documentOf(["redrive", "--all", ...REASON], { exit: 5, env });
    await broker.close();
    expect(problem).toMatchObject({
      code: "broker_unreachable",
      detail: expect.stringContaining("1 redriven, 0 left"),
    });
    expect(doneOf(problem.letters)).toEqual(["redriven"]);
    expect(await buried()).toBe(1);
    // The record of the try comes before the call.
    expect((await actions()).slice(-2)).toMatchObject([
      { action: "dlq.redrive" },
      { action: "dlq.redrive" },
    ]);
  }, 60_000);

  test("a letter that SNS refuses for what it is stays, with why, and holds up none behind it", async () => {
    const first = await settledEvent();
    const second = await settledEvent();
    await bury(first.payload, second.payload);
    const broker = await startStrictBroker(flow().aws.endpointUrl ?? "");
    broker.next("PublishBatch", { kind: "refuse", status: 400, code: "InvalidParameter" });
    const env = { AWS_ENDPOINT_URL: broker.url };
    const { letters } = await documentOf(["redrive", "--all", ...REASON], { env });
    await broker.close();
    expect(doneOf(letters)).toEqual(["left", "redriven"]);
    expect(letters[0]?.advice).toMatch(/^SNS refuses it: InvalidParameter/);
    expect(await buried()).toBe(1);
  }, 60_000);

  test("waits where SNS throttles, and goes on", async () => {
    const { payload } = await settledEvent();
    await bury(payload);
    const broker = await startStrictBroker(flow().aws.endpointUrl ?? "");
    const throttled = { kind: "refuse", status: 400, code: "Throttling" } as const;
    broker.next("PublishBatch", throttled, throttled);
    const env = { AWS_ENDPOINT_URL: broker.url };
    const { letters: sent } = await documentOf(["redrive", "--all", ...REASON], { env });
    await broker.close();
    expect([doneOf(sent), await buried()]).toEqual([["redriven"], 0]);
  }, 60_000);
});

describe("discard", () => {
  beforeEach(emptyQueue);

  test("takes only what the filter names, and keeps its whole text with who and why, byte for byte", async () => {
    const { payload, messageId } = await settledEvent();
    const junk = 'half a "letter" ü';
    await bury(payload, junk);
    const before = (await actions()).length;
    const tried = await documentOf(["discard", "--malformed", "--dry-run"]);
    expect([doneOf(tried.letters), (await actions()).length]).toEqual([["left"], before]);
    await untilAllCanBeSeen();
    const { letters: gone } = await documentOf(["discard", "--malformed", ...REASON]);
    expect([doneOf(gone), await buried()]).toEqual([["discarded"], 1]);
    await untilAllCanBeSeen();
    await documentOf(["discard", "--message-id", messageId, ...REASON]);
    expect(await buried()).toBe(0);
    expect((await actions()).slice(before)).toMatchObject([
      { action: "dlq.discard", id: null, reason: REASON[1], details: { body: junk } },
      { action: "dlq.discard", id: messageId, details: { body: payload } },
    ]);
  }, 60_000);
});

describe("the commands refuse", () => {
  test.each([
    [
      "without the queue's setting",
      { REMIT_LEDGER_DLQ_URL: "" },
      2,
      "usage",
      /^REMIT_LEDGER_DLQ_URL is/,
    ],
    [
      "a queue that isn't there",
      { REMIT_LEDGER_DLQ_URL: "http://x/0/none" },
      2,
      "usage",
      /^REMIT_LEDGER_DLQ_URL: .*none/,
    ],
    [
      "without a broker",
      { AWS_ENDPOINT_URL: "http://127.0.0.1:1" },
      5,
      "broker_unreachable",
      /127\.0\.0\.1:1/,
    ],
  ] as const)("%s", async (_, env, exit, code, detail) => {
    const problem = await documentOf(["peek"], { exit, env });
    expect(problem).toMatchObject({ code, detail: expect.stringMatching(detail) });
  });
});
