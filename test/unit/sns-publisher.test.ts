import type {
  PublishBatchCommand,
  PublishBatchCommandOutput,
  SNSClient,
} from "@aws-sdk/client-sns";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import type { OutgoingMessage, Publisher } from "../../src/messaging/sns-publisher.ts";

/** A small SNS that refuses what AWS refuses: 10 entries, 256 KiB a call, an empty attribute fails the whole call. */
class StrictSns {
  readonly calls: string[][] = [];
  readonly accepted: string[] = [];
  fail: (ids: string[]) => Partial<PublishBatchCommandOutput> | Error | undefined = () => undefined;

  async send({ input }: PublishBatchCommand): Promise<Partial<PublishBatchCommandOutput>> {
    const entries = input.PublishBatchRequestEntries ?? [];
    const ids = entries.map(({ Message = "" }) => (JSON.parse(Message) as { id: string }).id);
    this.calls.push(ids);
    const bytes = entries.reduce(
      (sum, { Message = "", MessageAttributes = {} }) =>
        sum +
        Buffer.byteLength(Message) +
        Object.entries(MessageAttributes).reduce(
          (all, [name, { DataType = "", StringValue = "" }]) =>
            all + Buffer.byteLength(name + DataType + StringValue),
          0,
        ),
      0,
    );
    if (entries.length > 10) throw named("TooManyEntriesInBatchRequestException");
    if (bytes > 262_144) throw named("BatchRequestTooLongException");
    if (entries.some(({ Message = "" }) => Message.includes("poison")))
      throw named("InvalidParameterException");
    const scripted = this.fail(ids);
    if (scripted instanceof Error) throw scripted;
    if (scripted !== undefined) return await Promise.resolve(scripted);
    this.accepted.push(...ids);
    return await Promise.resolve({
      Successful: entries.map(({ Id }, index) => ({ Id, MessageId: `sns-${ids[index]}` })),
      Failed: [],
    });
  }
}

function named(name: string): Error {
  return Object.assign(new Error(`${name} on purpose`), { name });
}

let sns: StrictSns;
let publisher: Publisher;
beforeEach(() => {
  sns = new StrictSns();
  publisher = createSnsPublisher(sns as unknown as SNSClient, "arn:aws:sns:us-east-1:0:topic");
});

function messages(count: number, { filler = "" } = {}): OutgoingMessage[] {
  return Array.from({ length: count }, (_, index) => ({
    messageId: `m${index}`,
    aggregateType: "payment",
    aggregateId: `p${index}`,
    aggregateVersion: "1",
    type: "payment.created",
    payload: JSON.stringify({ id: `m${index}`, filler }),
    headers: { capture: "automatic", dataschema: "urn:x", traceparent: "" },
  }));
}

describe("createSnsPublisher", () => {
  test("packs ten to a call and answers for each with the broker's id", async () => {
    const results = await publisher.publish(messages(25));
    expect(sns.calls.map(({ length }) => length).toSorted((a, b) => b - a)).toEqual([10, 10, 5]);
    expect(results).toHaveLength(25);
    expect(results).toContainEqual({
      kind: "accepted",
      messageId: "m24",
      brokerMessageId: "sns-m24",
    });
  });

  test("packs by bytes with the attributes counted: nothing is refused as too long", async () => {
    const results = await publisher.publish(messages(10, { filler: "é".repeat(40_000) }));
    expect(results.every(({ kind }) => kind === "accepted")).toBe(true);
    expect(sns.calls.length).toBeGreaterThan(3);
  });

  test("looks at each entry: 200 with three failures marks seven, and tells fault from state", async () => {
    sns.fail = (ids) => ({
      Successful: ids
        .slice(3)
        .map((id, index) => ({ Id: String(index + 3), MessageId: `sns-${id}` })),
      Failed: [
        { Id: "0", Code: "InvalidParameter", SenderFault: true },
        { Id: "1", Code: "InternalError", SenderFault: false },
        { Id: "2", Code: "KMSThrottlingException", SenderFault: false },
      ],
    });
    const results = await publisher.publish(messages(10));
    expect(results.map(({ kind }) => kind)).toEqual([
      "fault",
      "outage",
      "throttled",
      ...Array.from({ length: 7 }, () => "accepted"),
    ]);
  });

  test("an entry that the answer leaves out was not accepted", async () => {
    sns.fail = () => ({ Successful: [{ Id: "0", MessageId: "only" }] });
    const [first, second] = await publisher.publish(messages(2));
    expect([first?.kind, second?.kind]).toEqual(["accepted", "outage"]);
  });

  test("one malformed entry that fails the whole call is found by halving; the nine others go out once", async () => {
    const batch = messages(10);
    batch[6] = {
      ...batch[6],
      payload: JSON.stringify({ id: "m6", poison: true }),
    } as OutgoingMessage;
    const results = await publisher.publish(batch);
    expect(
      results.filter(({ kind }) => kind === "fault").map(({ messageId }) => messageId),
    ).toEqual(["m6"]);
    expect(sns.accepted.toSorted()).toEqual(["m0", "m1", "m2", "m3", "m4", "m5", "m7", "m8", "m9"]);
    expect(sns.calls.length).toBeLessThanOrEqual(12);
  });

  test.each([
    ["ECONNREFUSED", "outage"],
    ["ThrottlingException", "throttled"],
    ["InternalErrorException", "outage"],
    ["AuthorizationErrorException", "outage"],
  ])(
    "a whole call that fails with %s is the broker's state (%s) and isn't bisected",
    async (name, kind) => {
      sns.fail = () => named(name);
      const results = await publisher.publish(messages(10));
      expect(results.map((result) => result.kind)).toEqual(Array.from({ length: 10 }, () => kind));
      expect(sns.calls).toHaveLength(1);
    },
  );
});
