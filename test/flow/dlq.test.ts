import { setTimeout as delay } from "node:timers/promises";
import { SendMessageCommand } from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { v7 as uuidv7 } from "uuid";
import {
  discardLetters,
  peekLetters,
  redriveLetters,
} from "../../src/activities/operate-dead-letters.ts";
import type { LetterReport } from "../../src/activities/operate-dead-letters.ts";
import { knownMessage, listInbox } from "../../src/database/inbox-queries.ts";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import { openDeadLetters } from "../../src/messaging/dead-letters.ts";
import type { DeadLetters } from "../../src/messaging/dead-letters.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import { createdMessage, expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

const flow = useFlow();
const operator = { actor: "ana@desk", reason: "ledger database is back" };
const ALL = { limit: 1_000 };
let sqs: SQSClient;
let letters: DeadLetters;

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
  sqs = createSqsClient(flow().aws, { requestTimeoutMs: 10_000 });
  letters = openDeadLetters(sqs, flow().ledgerDlqUrl);
}, 60_000);
beforeEach(async () => {
  await untilAllCanBeSeen();
  await letters.visit(async (letter) => {
    await letters.remove(letter);
    return "removed";
  });
});
afterEach(async () => {
  await expectInvariants(flow().database);
});
afterAll(() => {
  sqs.destroy();
});

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

function forged(): string {
  const id = uuidv7();
  return JSON.stringify({
    specversion: "1.0",
    id,
    source: "/x",
    type: "payment.created",
    data: {},
  });
}

async function collect(
  work: (dependencies: {
    database: ReturnType<typeof flow>["database"]["app"];
    letters: DeadLetters;
    onLetter: (report: LetterReport) => void;
  }) => Promise<void>,
): Promise<LetterReport[]> {
  const reports: LetterReport[] = [];
  await work({
    database: flow().database.app,
    letters,
    onLetter: (report) => reports.push(report),
  });
  return reports;
}

async function buried(): Promise<number> {
  return (await letters.status()).visible;
}

/** A look gives back what it saw after two seconds; the emulator counts it as visible at the next receive only. */
async function untilAllCanBeSeen(): Promise<void> {
  await delay(2_500);
}

async function redrive(filter: object = ALL, isDryRun = false): Promise<LetterReport[]> {
  const sns = createSnsClient(flow().aws, { requestTimeoutMs: 5_000 });
  const publisher = createSnsPublisher(sns, flow().topicArn);
  const reports = await collect(async (dependencies) => {
    await redriveLetters(
      { ...dependencies, publisher },
      { filter: { ...ALL, ...filter }, operator, isDryRun, perSecondMax: null },
    );
  });
  sns.destroy();
  return reports;
}

async function actions(): Promise<Record<string, unknown>[]> {
  return await flow().database.admin(
    "SELECT action, message_id AS id, actor, details FROM remit.operator_actions ORDER BY created_at",
  );
}

describe("dead letters", () => {
  test("are each seen once, also more than one receive holds, with what is known and what to do; a look removes none", async () => {
    const { messageId, payload } = await settledEvent();
    await bury(payload, "no JSON", ...Array.from({ length: 23 }, forged));
    const reports = await collect(async (dependencies) => await peekLetters(dependencies, ALL));
    expect(reports).toHaveLength(25);
    expect(new Set(reports.map(({ sqsMessageId }) => sqsMessageId)).size).toBe(25);
    expect(reports.find((report) => report.messageId === messageId)).toMatchObject({
      outboxStatus: "PUBLISHED",
      outcome: "booked",
      advice: "decided already (booked): discard it",
    });
    expect(reports.filter(({ wellFormed }) => !wellFormed)).toMatchObject([
      { messageId: null, reason: "the body is not JSON" },
    ]);
    expect(reports.filter(({ advice }) => advice.startsWith("no event of ours"))).toHaveLength(23);
    expect(await buried()).toBe(25);
    await untilAllCanBeSeen();
    const status = await letters.status();
    expect(status.oldestAgeSeconds).toBeGreaterThanOrEqual(0);
  });

  test("redriven go out under their own ids and are booked once; what is malformed or forged stays, and a dry run does nothing", async () => {
    const { messageId, payload } = await settledEvent();
    await bury(payload, "no JSON", forged());
    expect(await redrive({}, true)).toHaveLength(3);
    expect(await buried()).toBe(3);
    await untilAllCanBeSeen();
    const before = (await actions()).length;
    const reports = await redrive();
    expect(reports.map(({ done }) => done).toSorted()).toEqual(["left", "left", "redriven"]);
    expect(reports.find(({ done }) => done === "redriven")).toMatchObject({ messageId });
    expect((await actions()).slice(before)).toMatchObject([
      { action: "dlq.redrive", id: messageId, actor: "ana@desk", details: { republication: 1 } },
    ]);
    await eventually(async () => {
      const inbox = await listInbox(flow().database.app, { onlyErrors: false, limit: 100 });
      expect(inbox.find((row) => row.messageId === messageId)).toMatchObject({
        outcome: "booked",
        deliveries: 2,
      });
    });
    expect(await buried()).toBe(2);
  });

  test("are chosen by id, type, payment and shape, and by a limit", async () => {
    const one = await settledEvent();
    const other = await settledEvent();
    await bury(one.payload, other.payload, "no JSON", "{}");
    const count = async (filter: object): Promise<number> => {
      // What the look before gave back is visible again after two seconds.
      await untilAllCanBeSeen();
      return (
        await collect(
          async (dependencies) => await peekLetters(dependencies, { ...ALL, ...filter }),
        )
      ).length;
    };
    expect(await count({ messageIds: [one.messageId] })).toBe(1);
    expect(await count({ paymentId: other.paymentId })).toBe(1);
    expect(await count({ type: "payment.created" })).toBe(2);
    expect(await count({ type: "refund.created" })).toBe(0);
    expect(await count({ malformed: true })).toBe(2);
    expect(await count({ limit: 3 })).toBe(3);
    expect(await buried()).toBe(4);
  }, 60_000);

  test("discarded leave their whole text behind, with who and why, byte for byte", async () => {
    const { payload, messageId } = await settledEvent();
    await bury(payload, 'half a "letter" ü');
    const before = (await actions()).length;
    const reports = await collect(async (dependencies) => {
      await discardLetters(dependencies, { filter: ALL, operator, isDryRun: false });
    });
    expect(reports.map(({ done }) => done)).toEqual(["discarded", "discarded"]);
    expect(await buried()).toBe(0);
    const kept = (await actions()).slice(before);
    expect(kept.map(({ action }) => action)).toEqual(["dlq.discard", "dlq.discard"]);
    expect(kept.find(({ id }) => id === messageId)?.["details"]).toMatchObject({ body: payload });
    expect(kept.find(({ id }) => id === null)?.["details"]).toMatchObject({
      body: 'half a "letter" ü',
    });
  });

  test("that SNS doesn't take stay, with the record of the try", async () => {
    const { messageId, payload } = await settledEvent();
    await bury(payload);
    const away = redriveLetters(
      {
        database: flow().database.app,
        letters,
        onLetter: () => undefined,
        publisher: {
          isReachable: async () => await Promise.resolve(false),
          publish: async (messages) =>
            await Promise.resolve(
              messages.map((message) => ({
                kind: "outage" as const,
                messageId: message.messageId,
                error: "ECONNREFUSED",
              })),
            ),
        },
      },
      { filter: ALL, operator, isDryRun: false, perSecondMax: null },
    );
    await expect(away).rejects.toMatchObject({ code: "broker_unreachable" });
    expect(await buried()).toBe(1);
    expect((await actions()).at(-1)).toMatchObject({ action: "dlq.redrive", id: messageId });
  });

  test("whose event was purged are known by the ledger alone", async () => {
    const { messageId } = await settledEvent();
    await flow().database.admin("DELETE FROM remit.inbox WHERE message_id = $1", [messageId]);
    expect(await knownMessage(flow().database.app, messageId)).toMatchObject({ outcome: "booked" });
    expect(await knownMessage(flow().database.app, uuidv7())).toEqual({
      outboxStatus: null,
      outcome: null,
      error: null,
    });
  });
});
