import assert from "node:assert/strict";
import type { SNSClient } from "@aws-sdk/client-sns";
import fc from "fast-check";
import { createSnsClient } from "../../src/messaging/aws-clients.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import type { Publisher } from "../../src/messaging/sns-publisher.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";
import { emptyOutbox, useDatabase } from "../support/database.ts";
import { relayOnce } from "../support/relay-once.ts";
import { testServices } from "../support/services.ts";
import { startStrictBroker } from "../support/strict-broker.ts";
import type { StrictBroker } from "../support/strict-broker.ts";
import { SEED, counterexample, oddText } from "./fuzz.ts";

/** A row that is in the table can be sent: the door refuses, in its writer's transaction, what SNS and SQS would refuse. */

jest.setTimeout(1_800_000);
const database = useDatabase();
const CREDENTIALS = { accessKeyId: "local", secretAccessKey: "local" };
let broker: StrictBroker;
let sns: SNSClient;
let publisher: Publisher;

beforeAll(async () => {
  broker = await startStrictBroker(testServices().REMIT_TEST_AWS_ENDPOINT_URL);
  const target = { endpointUrl: broker.url, region: "us-east-1", credentials: CREDENTIALS };
  const { topicArn } = await ensureTopology(target, { prefix: `fuzz-${process.pid}` });
  sns = createSnsClient(target, { requestTimeoutMs: 5_000 });
  publisher = createSnsPublisher(sns, topicArn);
});
afterAll(async () => {
  sns.destroy();
  await broker.close();
});

/** Mostly what may be right, so that about half of the rows come in. */
const mostly = (right: fc.Arbitrary<string>, odd: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.oneof({ weight: 12, arbitrary: right }, { weight: 1, arbitrary: odd });
const name = mostly(fc.constantFrom("order", "thing", "A-b_9", "z".repeat(64)), oddText);
const visible = (max: number): fc.Arbitrary<string> =>
  mostly(
    fc.string({
      unit: fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCodePoint(code)),
      minLength: 1,
      maxLength: max,
    }),
    oddText,
  );
const anyJson = fc.json({ stringUnit: "grapheme", maxDepth: 4 });
/** Around what fits, and what PostgreSQL writes longer than it was given. */
const large = fc
  .tuple(fc.integer({ min: 238_000, max: 241_000 }), fc.constantFrom("x", "é", "\u0001", '"'))
  .map(([bytes, filling]) =>
    JSON.stringify({ a: filling.repeat(bytes / JSON.stringify(filling).length) }),
  );
const objects = fc
  .dictionary(fc.string({ unit: "grapheme" }), fc.jsonValue({ stringUnit: "grapheme" }), {
    maxKeys: 4,
  })
  .map((value) => JSON.stringify(value));
const data = mostly(fc.oneof(objects, objects, anyJson, large), oddText);
const attributeName = mostly(
  fc.constantFrom("region", "tenant", "traceparent", "a", "b-_9"),
  fc.oneof(oddText, fc.constantFrom("type", "AWS.x", "a b")),
);
const headers = mostly(
  fc.dictionary(attributeName, visible(60), { maxKeys: 3 }).map((it) => JSON.stringify(it)),
  fc.oneof(anyJson, oddText),
);

/** A refusal is a rule of the table, a right, or what no text and no JSON of PostgreSQL can hold; never anything unforeseen. */
const REFUSALS = /^(23514|42501|22P02|22P05|22021|22023|22026|22001|54000|54001)$/;

async function isLetIn(sql: string, values: readonly string[]): Promise<boolean> {
  try {
    await database().admin(sql, [...values]);
    return true;
  } catch (error) {
    assert.match((error as { code?: string }).code ?? String(error), REFUSALS);
    return false;
  }
}

beforeEach(async () => {
  await emptyOutbox(database());
});

test(`what emit_event lets in goes out, and what it refuses leaves nothing (REMIT_FUZZ_SEED=${SEED})`, async () => {
  const events = fc.tuple(name, visible(128), name, data, visible(60), headers);
  const sql = "SELECT remit.emit_event($1, $2, $3, $4::jsonb, $5, $6::jsonb) AS id";
  const check = async (values: readonly string[]): Promise<void> => await checkRow(sql, values);
  expect(await counterexample(events, check, { share: 0.5 })).toBe("");
});

test(`what the table lets in goes out, and what it refuses leaves nothing (REMIT_FUZZ_SEED=${SEED})`, async () => {
  const rows = fc.tuple(name, visible(128), name, data, headers);
  const sql = `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload, headers)
               VALUES (remit.new_message_id(), $1, $2, $3, $4::jsonb, $5::jsonb)`;
  const check = async (values: readonly string[]): Promise<void> => await checkRow(sql, values);
  expect(await counterexample(rows, check, { share: 0.5 })).toBe("");
});

async function checkRow(sql: string, values: readonly string[]): Promise<void> {
  const isIn = await isLetIn(sql, values);
  const statuses = async (): Promise<string[]> => {
    const rows = await database().admin<{ status: string }>("SELECT status FROM remit.outbox");
    return rows.map(({ status }) => status);
  };
  if (!isIn) {
    assert.deepEqual(await statuses(), []);
    return;
  }
  const { claimed, failures, outage } = await relayOnce(database(), publisher);
  assert.deepEqual({ claimed, failures, outage }, { claimed: 1, failures: [], outage: null });
  assert.deepEqual(await statuses(), ["PUBLISHED"]);
  await emptyOutbox(database());
}
