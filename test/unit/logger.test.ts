import { createLogger } from "../../src/observability/logger.ts";

/** What a line may never say, wherever it stands. */

const SECRET = "hunter2";

function lineOf(fields: object): Record<string, unknown> {
  const lines: string[] = [];
  const logger = createLogger(
    { name: "test", level: "info" },
    { write: (text) => lines.push(text) },
  );
  logger.info(fields, "said");
  expect(lines).toHaveLength(1);
  return JSON.parse(lines[0] ?? "") as Record<string, unknown>;
}

describe("a line of the log", () => {
  test.each([
    ["a password", { password: SECRET }],
    ["one within a part", { connection: { password: SECRET } }],
    ["one within a part's part", { worker: { connection: { password: SECRET } } }],
    ["an address of the database", { databaseUrl: `postgres://remit_app:${SECRET}@db/remit` }],
    ["one of the settings", { settings: { adminDatabaseUrl: `postgres://o:${SECRET}@db/remit` } }],
    ["Temporal's key", { connectionOptions: { apiKey: SECRET } }],
    ["AWS's keys", { credentials: { secretAccessKey: SECRET, sessionToken: SECRET } }],
    ["a header", { headers: { authorization: `Bearer ${SECRET}` } }],
    ["a payment's own words", { input: { description: SECRET } }],
    ["a message's payload", { message: { payload: `{"idempotencyKey":"${SECRET}"}` } }],
    ["an address in an error", { err: new Error(`can't reach postgres://a:${SECRET}@db:5432`) }],
    [
      "one in its cause",
      { err: new Error("away", { cause: new Error(`http://a:${SECRET}@sns`) }) },
    ],
    ["one in an error of Temporal's", { error: new Error(`http://a:${SECRET}@temporal`) }],
    ["what pg quotes of a row", { err: Object.assign(new Error("twice"), { detail: SECRET }) }],
  ])("doesn't say %s", (_, fields) => {
    expect(JSON.stringify(lineOf(fields))).not.toContain(SECRET);
  });

  test("says of an error its name, its code, its message and where it came from", () => {
    const err = Object.assign(new TypeError("broken"), { code: "ECONNREFUSED" });
    expect(lineOf({ err })["err"]).toMatchObject({
      name: "TypeError",
      code: "ECONNREFUSED",
      message: "broken",
      stack: expect.stringContaining("logger.test"),
    });
  });

  test("says a reason that is a text as it is", () => {
    expect(lineOf({ error: "account_closed" })).toMatchObject({ error: "account_closed" });
  });
});
