import { readFileSync } from "node:fs";
import { runGroup } from "../../src/cli/doctor/check.ts";
import type { CheckResult } from "../../src/cli/doctor/check.ts";
import { allChecks } from "../../src/cli/doctor/examine.ts";
import { settingsGroup } from "../../src/cli/doctor/settings.ts";
import { inspectSettings } from "../../src/config/inspect-settings.ts";
import { letsTopicSend } from "../../src/messaging/queue-policy.ts";
import { complaintsOf } from "../support/doctor.ts";

const ENVIRONMENT = {
  DATABASE_URL: "postgres://app:s3cret@db.example/remit",
  REMIT_TOPIC_ARN: "arn:aws:sns:us-west-2:111111111111:remit-events",
  REMIT_LEDGER_QUEUE_URL: "https://sqs.us-west-2.amazonaws.com/111111111111/remit-ledger",
};

async function complaints(
  env: Record<string, string>,
  nodeVersion = "24.1.0",
): Promise<CheckResult[]> {
  const view = inspectSettings({ env: { ...ENVIRONMENT, ...env }, cwd: "/absent" });
  const results = await runGroup(settingsGroup({ view, nodeVersion }));
  return complaintsOf(results).filter(({ status }) => status !== "unknown");
}

describe("remit doctor, of the settings", () => {
  test("has nothing to say about the defaults", async () => {
    expect(await complaints({})).toEqual([]);
  });

  test.each([
    [
      "a send that may outlive its lease",
      { REMIT_LEASE_MS: "3000", REMIT_SEND_TIMEOUT_MS: "2900" },
      "settings.valid",
      /REMIT_SEND_TIMEOUT_MS is not 2000 less than REMIT_LEASE_MS/,
      /configuration\.md/,
    ],
    [
      "an outbox that outlives the inbox",
      { REMIT_OUTBOX_RETENTION_HOURS: "800" },
      "settings.valid",
      /REMIT_OUTBOX_RETENTION_HOURS is more than REMIT_INBOX_RETENTION_HOURS/,
      /configuration\.md/,
    ],
    [
      "a setting that is malformed and one that is missing, both",
      { REMIT_LEASE_MS: "1O000", DATABASE_URL: "" },
      "settings.valid",
      /(?=.*REMIT_LEASE_MS)(?=.*DATABASE_URL is not set)/,
      /configuration\.md/,
    ],
    [
      "a name that nothing reads",
      { REMIT_LEASE: "3000" },
      "settings.unread",
      /^nothing reads REMIT_LEASE$/,
      /remit config show/,
    ],
    [
      "a pool that its relays use up",
      { REMIT_RELAY_SHARDS: "8" },
      "settings.pool",
      /^10 connections, REMIT_RELAY_SHARDS=8, where 20 are busy/,
      /^REMIT_DATABASE_POOL_MAX=20/,
    ],
    [
      "a grace that a long poll outlasts",
      { REMIT_SHUTDOWN_GRACE_MS: "2000" },
      "settings.shutdown",
      /^2000 ms to drain/,
      /^REMIT_SHUTDOWN_GRACE_MS=7000/,
    ],
  ])("names %s", async (_what, env, name, found, fix) => {
    expect(await complaints(env)).toEqual([
      {
        name,
        status: name === "settings.valid" ? "fail" : "warn",
        found: expect.stringMatching(found),
        fix: expect.stringMatching(fix),
      },
    ]);
  });

  test("names a Node that is too old", async () => {
    expect(await complaints({}, "22.17.3")).toMatchObject([
      { name: "settings.node", status: "fail", found: "Node 22.17.3" },
    ]);
    expect(await complaints({}, "22.18.0")).toEqual([]);
  });
});

describe("a group of checks", () => {
  const never = new Promise<never>(() => undefined);
  const hanging = { name: "x.hangs", about: "", judge: async () => await never };
  const answering = {
    name: "x.answers",
    about: "",
    judge: () => ({ status: "ok", found: "", fix: null }) as const,
  };
  const group = {
    reach: { name: "x.reachable", about: "" },
    checks: [hanging, answering],
    open: async () => ({ context: null, found: "there", close: async () => await never }),
    explain: () => ({ status: "fail", found: "explained", fix: null }) as const,
  };
  const statuses = (results: CheckResult[]): string[] =>
    results.map(({ name, status }) => `${name} ${status}`);

  test("gives up a check that hangs, and judges the others", async () => {
    const results = await runGroup(group, { withinMs: 20 });
    expect(statuses(results)).toEqual(["x.reachable ok", "x.hangs fail", "x.answers ok"]);
  });

  test("gives up what can't even be opened, once for all its checks", async () => {
    const closed = { ...group, open: async () => await never };
    const results = await runGroup(closed, { withinMs: 20 });
    const unknown = ["x.hangs unknown", "x.answers unknown"];
    expect(statuses(results)).toEqual(["x.reachable fail", ...unknown]);
  });
});

describe("the policy of a queue", () => {
  const queueArn = "arn:aws:sqs:us-west-2:1:remit-ledger";
  const topicArn = "arn:aws:sns:us-west-2:1:remit-events";
  const allow = {
    Effect: "Allow",
    Principal: { Service: "sns.amazonaws.com" },
    Action: "sqs:SendMessage",
    Resource: queueArn,
    Condition: { ArnEquals: { "aws:SourceArn": topicArn } },
  };
  const lets = (...Statement: object[]): boolean =>
    letsTopicSend(JSON.stringify({ Statement }), { queueArn, topicArn });

  test.each([
    ["ours", [allow]],
    [
      "any action and any topic of the account",
      [
        {
          ...allow,
          Action: "SQS:*",
          Condition: { ArnLike: { "AWS:SourceArn": "arn:aws:sns:*:1:*" } },
        },
      ],
    ],
    ["everybody", [{ ...allow, Principal: "*", Condition: undefined }]],
    [
      "ours beside a denial of something else",
      [allow, { Effect: "Deny", Principal: "*", Action: "sqs:DeleteQueue", Resource: queueArn }],
    ],
  ])("lets the topic send: %s", (_what, statements) => {
    expect(lets(...statements)).toBe(true);
  });

  test.each([
    ["no statement", []],
    [
      "another topic",
      [{ ...allow, Condition: { ArnEquals: { "aws:SourceArn": `${topicArn}-2` } } }],
    ],
    ["another queue", [{ ...allow, Resource: `${queueArn}-2` }]],
    ["another service", [{ ...allow, Principal: { Service: "s3.amazonaws.com" } }]],
    ["another action", [{ ...allow, Action: ["sqs:ReceiveMessage"] }]],
    ["a denial beside it", [allow, { Effect: "Deny", Principal: "*", Action: "sqs:*" }]],
  ])("doesn't: %s", (_what, statements) => {
    expect(lets(...statements)).toBe(false);
  });

  test("doesn't where it is missing or no JSON", () => {
    const ends = { queueArn, topicArn };
    expect([letsTopicSend(undefined, ends), letsTopicSend("{", ends)]).toEqual([false, false]);
  });
});

describe("docs/doctor.md", () => {
  test("has each check, in its order and with its words, and no other", () => {
    const page = readFileSync("docs/doctor.md", "utf8");
    const rows = [...page.matchAll(/^\| `([a-z_.]+)` +\| (.*?) +\| (.*?) +\|$/gm)];
    expect(rows.map(([, name, about]) => ({ name, about }))).toEqual(allChecks());
    expect(rows.filter(([, , , fix = ""]) => fix === "")).toEqual([]);
  });
});
