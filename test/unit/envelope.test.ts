import { parseMessage } from "../../src/messaging/envelope.ts";

const event = {
  specversion: "1.0",
  id: "01a22f9c-e7a3-749f-9fb1-a5375548064b",
  type: "payment.created",
  data: { amountMinor: "9007199254740993" },
};
const raw = JSON.stringify(event);
const wrap = (Message: string): string =>
  JSON.stringify({ Type: "Notification", TopicArn: "arn:x", MessageId: "other", Message });

describe("parseMessage", () => {
  test("raw and wrapped delivery give the same message, byte for byte, keyed by the event's id", () => {
    const expected = { ok: true, message: { messageId: event.id, type: event.type, payload: raw } };
    expect(parseMessage(raw)).toEqual(expected);
    expect(parseMessage(wrap(raw))).toEqual(expected);
  });

  test("a payload of its own that has Type and Message isn't mistaken for an envelope", () => {
    const body = JSON.stringify({ ...event, Type: "Notification", TopicArn: "x", Message: "{}" });
    expect(parseMessage(body)).toMatchObject({ ok: true, message: { payload: body } });
  });

  test.each([
    "",
    "not json",
    "null",
    "[]",
    "{}",
    wrap("{}"),
    wrap("nope"),
    JSON.stringify({ ...event, id: "1" }),
    JSON.stringify({ ...event, data: { text: "\u0000" } }),
    JSON.stringify({ ...event, data: { text: "\ud800" } }),
    raw.replace('"9007199254740993"', "1e999999"),
    raw.replace('"9007199254740993"', "[".repeat(40_000) + "]".repeat(40_000)),
  ])("malformed %j is refused with a reason", (body) => {
    const parsed = parseMessage(body);
    expect(parsed.ok).toBe(false);
    expect(parsed.ok ? "" : parsed.reason).not.toBe("");
  });
});
