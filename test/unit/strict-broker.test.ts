import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { PublishBatchCommand, PublishCommand } from "@aws-sdk/client-sns";
import type { PublishBatchRequestEntry, SNSClient } from "@aws-sdk/client-sns";
import {
  ChangeMessageVisibilityCommand,
  DeleteMessageBatchCommand,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
} from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import { startStrictBroker } from "../support/strict-broker.ts";
import type { StrictBroker } from "../support/strict-broker.ts";

/** The stand-in is held to what was recorded from AWS, through the SDK; what stands behind it takes everything. */
const QueueUrl = "http://x/000000000000/q";
const TopicArn = "arn:aws:sns:us-east-1:000000000000:t";
let emulator: Server;
let forwarded: string[];
let broker: StrictBroker;
let sns: SNSClient;
let sqs: SQSClient;

beforeEach(async () => {
  forwarded = [];
  emulator = createServer((incoming, answer) => {
    void text(incoming).then((body) => {
      forwarded.push(body);
      answer.end(answerTo(incoming.headers["x-amz-target"], body));
    });
  });
  emulator.listen({ host: "127.0.0.1", port: 0 });
  await once(emulator, "listening");
  const { port } = emulator.address() as AddressInfo;
  broker = await startStrictBroker(`http://127.0.0.1:${port}`);
  const credentials = { accessKeyId: "a", secretAccessKey: "b" };
  const target = { endpointUrl: broker.url, region: "us-east-1", credentials };
  sns = createSnsClient(target, { requestTimeoutMs: 500 });
  sqs = createSqsClient(target, { requestTimeoutMs: 500 });
});
afterEach(async () => {
  for (const client of [sns, sqs]) client.destroy();
  await broker.close();
  emulator.closeAllConnections();
  emulator.close();
  await once(emulator, "close");
});

function answerTo(target: string | string[] | undefined, body: string): string {
  if (target === "AmazonSQS.ReceiveMessage") {
    return JSON.stringify({
      Messages: ["1", "2"].map((id) => ({
        MessageId: id,
        ReceiptHandle: `h${id}`,
        Body: "{}",
        MD5OfBody: md5("{}"),
      })),
    });
  }
  if (target !== undefined) {
    const { Entries = [] } = JSON.parse(body) as {
      Entries?: { Id: string; MessageBody?: string }[];
    };
    return JSON.stringify({
      Successful: Entries.map(({ Id, MessageBody = "" }) => ({
        Id,
        MD5OfMessageBody: md5(MessageBody),
      })),
    });
  }
  const ids = [...new URLSearchParams(body)].flatMap(([name, id]) =>
    name.endsWith(".Id") ? id : [],
  );
  const members = ids.map((id) => `<member><Id>${id}</Id><MessageId>m-${id}</MessageId></member>`);
  return `<PublishBatchResponse><PublishBatchResult><Failed/><Successful>${members.join("")}</Successful></PublishBatchResult></PublishBatchResponse>`;
}

function md5(text: string): string {
  return createHash("md5").update(text).digest("hex");
}

/** The name of the error as the SDK reads it, or null; and a refused call is not forwarded. */
async function nameOf(call: Promise<unknown>): Promise<string | null> {
  const name = await call.then(() => null).catch((error: Error) => error.name);
  expect(forwarded.length).toBe(name === null ? 1 : 0);
  return name;
}

const attribute = (StringValue = "x", DataType = "String") => ({ DataType, StringValue });
const attributes = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, nth) => [`a${nth}`, attribute()]));
const good: PublishBatchRequestEntry = { Id: "0", Message: "{}", MessageAttributes: attributes(1) };
const named = (name: string) => [{ ...good, MessageAttributes: { [name]: attribute() } }];
/** The attribute of `good` counts 2 + 6 + 1 bytes. */
const BATCH_BYTES = 262_144 - 9;

describe("of a PublishBatch it refuses as a whole what AWS refuses as a whole", () => {
  test.each<[string, PublishBatchRequestEntry[], string | null]>([
    ["nothing of a good entry", [good], null],
    ["ten entries: nothing", entries(10), null],
    ["eleven entries", entries(11), "TooManyEntriesInBatchRequestException"],
    ["two of one id", [good, good], "BatchEntryIdsNotDistinctException"],
    ["an id with a colon", [{ ...good, Id: "a:1" }], "InvalidBatchEntryIdException"],
    ["an id of 81 characters", [{ ...good, Id: "i".repeat(81) }], "InvalidBatchEntryIdException"],
    ["256 KiB with the attributes: nothing", [sized(BATCH_BYTES)], null],
    ["a byte more", [sized(BATCH_BYTES + 1)], "BatchRequestTooLongException"],
    ["bytes, not characters", [sized(BATCH_BYTES, "é")], "BatchRequestTooLongException"],
    ["a control character", [{ ...good, Message: "a\u0001" }], "InvalidParameterException"],
    ["U+FFFE", [{ ...good, Message: "a\uFFFE" }], "InvalidParameterException"],
    ["an emoji: nothing", [{ ...good, Message: "🙂" }], null],
    ["an empty message", [{ ...good, Message: "" }], "InvalidParameterException"],
    ["ten attributes: nothing", [{ ...good, MessageAttributes: attributes(10) }], null],
    [
      "eleven attributes",
      [{ ...good, MessageAttributes: attributes(11) }],
      "InvalidParameterException",
    ],
    [
      "an empty attribute",
      [{ ...good, MessageAttributes: { a: attribute("") } }],
      "InvalidParameterValueException",
    ],
    [
      "an unknown type",
      [{ ...good, MessageAttributes: { a: attribute("x", "Text") } }],
      "InvalidParameterValueException",
    ],
    ["a name that starts with a dot", named(".a"), "InvalidParameterValueException"],
    ["a name that ends with one", named("a."), "InvalidParameterValueException"],
    ["a name with two of them", named("a..b"), "InvalidParameterValueException"],
    ["a name with one in the middle: nothing", named("a.b"), null],
    [
      "a good entry beside a bad one",
      [good, { ...good, Id: "1", Message: "\u0001" }],
      "InvalidParameterException",
    ],
  ])("%s", async (_, PublishBatchRequestEntries, expected) => {
    const call = sns.send(new PublishBatchCommand({ TopicArn, PublishBatchRequestEntries }));
    expect(await nameOf(call)).toBe(expected);
  });

  test.each([
    ["without a group", { MessageDeduplicationId: "d" }, "InvalidParameterException"],
    ["without a deduplication id", { MessageGroupId: "g" }, "InvalidParameterException"],
    ["with both: nothing", { MessageGroupId: "g", MessageDeduplicationId: "d" }, null],
  ])("on a FIFO topic %s", async (_, ids, expected) => {
    const PublishBatchRequestEntries = [{ ...good, ...ids }];
    const call = sns.send(
      new PublishBatchCommand({ TopicArn: `${TopicArn}.fifo`, PublishBatchRequestEntries }),
    );
    expect(await nameOf(call)).toBe(expected);
  });

  test("and of a single Publish the same", async () => {
    const call = sns.send(new PublishCommand({ TopicArn, Message: "a\u0001" }));
    expect(await nameOf(call)).toBe("InvalidParameterException");
  });
});

function entries(count: number): PublishBatchRequestEntry[] {
  return Array.from({ length: count }, (_, id) => ({ ...good, Id: `${id}` }));
}

function sized(bytes: number, tail = ""): PublishBatchRequestEntry {
  return { ...good, Message: "x".repeat(bytes - tail.length) + tail };
}

describe("of a call to SQS it refuses what AWS refuses", () => {
  const receive = (input: object) => new ReceiveMessageCommand({ QueueUrl, ...input });
  const send = (MessageBody: string, input = {}) =>
    new SendMessageCommand({ QueueUrl, MessageBody, ...input });
  const handles = (count: number) =>
    Array.from({ length: count }, (_, id) => ({ Id: `${id}`, ReceiptHandle: "h" }));
  const visible = (VisibilityTimeout: number) =>
    new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: "h", VisibilityTimeout });
  const remove = (Entries: { Id: string; ReceiptHandle: string }[]) =>
    new DeleteMessageBatchCommand({ QueueUrl, Entries });

  test.each<[string, () => Promise<unknown>, string | null]>([
    [
      "a receive of ten: nothing",
      async () => await sqs.send(receive({ MaxNumberOfMessages: 10 })),
      null,
    ],
    [
      "a receive of eleven",
      async () => await sqs.send(receive({ MaxNumberOfMessages: 11 })),
      "InvalidParameterValue",
    ],
    [
      "a poll of 21 s",
      async () => await sqs.send(receive({ WaitTimeSeconds: 21 })),
      "InvalidParameterValue",
    ],
    ["a visibility of 12 h: nothing", async () => await sqs.send(visible(43_200)), null],
    ["a second more", async () => await sqs.send(visible(43_201)), "InvalidParameterValue"],
    [
      "eleven deletes",
      async () => await sqs.send(remove(handles(11))),
      "TooManyEntriesInBatchRequest",
    ],
    ["no delete", async () => await sqs.send(remove([])), "EmptyBatchRequest"],
    [
      "two deletes of one id",
      async () => await sqs.send(remove([...handles(1), ...handles(1)])),
      "BatchEntryIdsNotDistinct",
    ],
    ["a message with U+FFFF", async () => await sqs.send(send("\uFFFF")), "InvalidMessageContents"],
    ["an empty message", async () => await sqs.send(send("")), "InvalidParameterValue"],
    [
      "a message of a MiB and a byte",
      async () => await sqs.send(send("x".repeat(1_048_577))),
      "InvalidParameterValue",
    ],
    [
      "eleven attributes",
      async () => await sqs.send(send("x", { MessageAttributes: attributes(11) })),
      "InvalidParameterValue",
    ],
    [
      "a FIFO queue without a group",
      async () => await sqs.send(send("x", { QueueUrl: `${QueueUrl}.fifo` })),
      "MissingParameter",
    ],
  ])("%s", async (_, call, expected) => {
    expect(await nameOf(call())).toBe(expected);
  });

  test("entry by entry in a SendMessageBatch, where the others go through", async () => {
    const Entries = [
      { Id: "good", MessageBody: "x" },
      { Id: "bad", MessageBody: "\u0001" },
    ];
    const { Successful, Failed } = await sqs.send(
      new SendMessageBatchCommand({ QueueUrl, Entries }),
    );
    expect(Successful?.map(({ Id }) => Id)).toEqual(["good"]);
    expect(Failed).toMatchObject([
      { Id: "bad", Code: "InvalidMessageContents", SenderFault: true },
    ]);
    expect(forwarded.join("")).not.toContain("bad");
  });
});

describe("what it is told to do befalls the next call of that action, and no other", () => {
  const publish = async (): Promise<unknown> =>
    await sns.send(new PublishBatchCommand({ TopicArn, PublishBatchRequestEntries: entries(3) }));

  test.each([
    [{ kind: "drop" }, /ECONNRESET|hang up/, 0],
    [{ kind: "lostAnswer" }, /ECONNRESET|hang up/, 1],
    [{ kind: "silence" }, /TimeoutError/, 0],
    [{ kind: "refuse", status: 400, code: "Throttling" }, /Throttling/, 0],
    [{ kind: "refuse", status: 403, code: "AuthorizationError" }, /AuthorizationError/, 0],
    [{ kind: "refuse", status: 429, code: "TooManyRequests" }, /TooManyRequests/, 0],
    [{ kind: "refuse", status: 500, code: "InternalError" }, /InternalError/, 0],
    [{ kind: "refuse", status: 503, code: "ServiceUnavailable" }, /ServiceUnavailable/, 0],
    [{ kind: "skewedClock", aheadMs: 1_200_000 }, /SignatureDoesNotMatch/, 0],
  ] as const)("%j", async (fault, met, reached) => {
    broker.next("PublishBatch", fault);
    const failure = await publish().catch((error: Error) => `${error.name} ${error.message}`);
    expect(failure).toMatch(met);
    expect(forwarded).toHaveLength(reached);
    await publish();
    expect(forwarded).toHaveLength(reached + 1);
    expect(broker.calls.map(({ action, entries: count }) => [action, count])).toEqual([
      ["PublishBatch", 3],
      ["PublishBatch", 3],
    ]);
  });

  test("starts an answer, promises more bytes than it sends, and sends nothing more", async () => {
    broker.next("ReceiveMessage", { kind: "halfAnswer" });
    const answer = await fetch(broker.url, {
      method: "POST",
      headers: { "x-amz-target": "AmazonSQS.ReceiveMessage" },
      body: "{}",
    });
    const promised = Number(answer.headers.get("content-length"));
    const reader = answer.body?.getReader();
    const first = await reader?.read();
    expect([answer.status, first?.value?.byteLength]).toEqual([200, Math.floor(promised / 2)]);
    const more = await Promise.race([reader?.read(), delay(300, "nothing more")]);
    expect(more).toBe("nothing more");
    await reader?.cancel();
  });

  test("fails the entries at their places with HTTP 200, and forwards the others", async () => {
    const failure = { code: "InternalError", senderFault: false };
    const failures = [
      { ...failure, place: 0 },
      { ...failure, place: 2 },
    ];
    broker.next("PublishBatch", { kind: "failEntries", failures });
    expect(await publish()).toMatchObject({
      Successful: [{ Id: "1" }],
      Failed: [
        { Id: "0", Code: "InternalError", SenderFault: false },
        { Id: "2", Code: "InternalError", SenderFault: false },
      ],
    });
  });

  test.each([
    ["repeat", ["h1", "h2", "h1", "h2"]],
    ["repeatOutdated", ["outdated", "outdated", "h1", "h2"]],
    ["reverse", ["h2", "h1"]],
  ] as const)("delivers as told: %s", async (kind, expected) => {
    broker.next("ReceiveMessage", { kind });
    const { Messages } = await sqs.send(new ReceiveMessageCommand({ QueueUrl }));
    expect(Messages?.map(({ ReceiptHandle }) => ReceiptHandle)).toEqual(expected);
  });
});
