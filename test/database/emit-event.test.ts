import { readFileSync } from "node:fs";
import { Client } from "pg";
import { randomBytes } from "node:crypto";
import type { OutgoingMessage } from "../../src/messaging/sns-publisher.ts";
import { useDatabase } from "../support/database.ts";
import { relayOnce } from "../support/relay-once.ts";
import { scriptedBroker } from "../support/scripted-broker.ts";

/** The outbox for other programs, as docs/outbox.md tells them. */
const database = useDatabase();
let producer: Client;
let role: string;

beforeEach(async () => {
  role = `shop_${randomBytes(5).toString("hex")}`;
  const password = randomBytes(8).toString("hex");
  await database().admin(`CREATE ROLE ${role} LOGIN PASSWORD '${password}'`);
  await database().admin(`GRANT remit_producer TO ${role}`);
  const url = new URL(database().url);
  url.username = role;
  url.password = password;
  producer = new Client({ connectionString: url.href });
  await producer.connect();
});
afterEach(async () => {
  await producer.end();
  await database().admin(`REVOKE remit_producer FROM ${role}; DROP ROLE ${role}`);
});

async function publishAll(): Promise<OutgoingMessage[]> {
  const sent: OutgoingMessage[] = [];
  const broker = scriptedBroker((message) => {
    sent.push(message);
    return "accepted";
  });
  await relayOnce(database(), broker);
  return sent;
}

describe("emit_event", () => {
  test("the example of the documentation runs as written, and its event goes out", async () => {
    const [, example = ""] =
      /```sql\n([^`]+)```/.exec(readFileSync("docs/outbox.md", "utf8")) ?? [];
    expect(example).toContain("remit.emit_event(");
    await producer.query(example);
    const [message] = await publishAll();
    expect(message).toMatchObject({
      aggregateType: "order",
      aggregateId: "order-4711",
      aggregateVersion: "1",
      type: "order.shipped",
      headers: { region: "eu" },
    });
    expect(JSON.parse(message?.payload ?? "")).toMatchObject({
      specversion: "1.0",
      id: message?.messageId,
      source: "/shop",
      type: "order.shipped",
      subject: "order-4711",
      datacontenttype: "application/json",
      data: { carrier: "DHL", parcels: 2 },
    });
  });

  test("sends if and only if the transaction commits", async () => {
    const emit = "SELECT remit.emit_event('order', 'rolled-back', 'order.shipped', '{}')";
    await producer.query(`BEGIN; ${emit}; ROLLBACK`);
    expect(await publishAll()).toEqual([]);
    await producer.query(`BEGIN; ${emit}; COMMIT`);
    expect(await publishAll()).toMatchObject([
      { aggregateId: "rolled-back", aggregateVersion: "1" },
    ]);
  });

  test.each([
    ["in the name of a payment", "'payment', 'x', 'order.shipped', '{}'", "42501"],
    ["of a payment's type", "'order', 'x', 'payment.settled', '{}'", "42501"],
    [
      "that is too big",
      "'order', 'x', 'order.shipped', jsonb_build_object('a', repeat('x', 240000))",
      "outbox_payload_check",
    ],
    [
      "with a character that no queue carries",
      "'order', 'x', 'order.shipped', jsonb_build_object('a', U&'\\FFFF')",
      "outbox_characters_check",
    ],
    [
      "with four attributes",
      `'order', 'x', 'order.shipped', '{}', '/', '{"a":"1","b":"2","c":"3","d":"4"}'`,
      "outbox_attributes_check",
    ],
    [
      "with a tab in an attribute",
      `'order', 'x', 'order.shipped', '{}', '/', '{"a":"1\\t2"}'`,
      "outbox_attributes_check",
    ],
    [
      "with an attribute of ours",
      `'order', 'x', 'order.shipped', '{}', '/', '{"type":"payment.settled"}'`,
      "outbox_attributes_check",
    ],
    [
      "with an attribute's name longer than SNS takes",
      `'order', 'x', 'order.shipped', '{}', '/', jsonb_build_object(repeat('n', 65), '1')`,
      "outbox_attributes_check",
    ],
    ["with a malformed type", "'order', 'x', 'order shipped', '{}'", "outbox_type_check"],
    [
      "of an aggregate without a name",
      "'order', '', 'order.shipped', '{}'",
      "outbox_aggregate_id_check",
    ],
  ])("refuses an event %s in the transaction of its writer", async (_, values, refusal) => {
    const met = await producer
      .query(`SELECT remit.emit_event(${values})`)
      .then(() => "nothing")
      .catch(({ code, constraint }: { code: string; constraint?: string }) => constraint ?? code);
    expect(met).toBe(refusal);
    expect(await publishAll()).toEqual([]);
  });

  test.each([
    "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES (remit.new_message_id(), 'order', 'x', 'order.shipped', '{}')",
    "SELECT count(*) FROM remit.outbox",
    "SELECT count(*) FROM remit.payments",
    "UPDATE remit.accounts SET status = 'frozen'",
  ])("is all that a producer may do: %s", async (statement) => {
    await expect(producer.query(statement)).rejects.toMatchObject({ code: "42501" });
  });
});
