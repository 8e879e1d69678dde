import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import {
  GetSubscriptionAttributesCommand,
  ListSubscriptionsByTopicCommand,
  SetSubscriptionAttributesCommand,
} from "@aws-sdk/client-sns";
import { GetQueueAttributesCommand, SetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import { testServices } from "../support/services.ts";

jest.setTimeout(60_000);
const MAIN = resolve("src/cli/main.ts");
const KEYS = { AWS_ACCESS_KEY_ID: "local", AWS_SECRET_ACCESS_KEY: "local" };
const prefix = `s-${randomBytes(4).toString("hex")}`;
let cwd: string;

beforeAll(() => {
  cwd = mkdtempSync(join(tmpdir(), "remit-aws-"));
});
afterAll(() => {
  rmSync(cwd, { recursive: true });
});

function standIn(): Record<string, string> {
  const endpoint = testServices().REMIT_TEST_AWS_ENDPOINT_URL;
  return { ...KEYS, AWS_REGION: "eu-central-1", AWS_ENDPOINT_URL: endpoint };
}

async function setup(
  env: Record<string, string>,
  ...words: string[]
): Promise<{ exit: number; out: Record<string, unknown> }> {
  return await new Promise((settle) => {
    const args = [MAIN, "aws", "setup", "--prefix", prefix, "--json", ...words];
    const options = { cwd, env: { PATH: process.env["PATH"], HOME: cwd, ...env } };
    execFile(process.execPath, args, options, (error, out) => {
      settle({
        exit: error === null ? 0 : Number(error.code),
        out: JSON.parse(out || "{}") as Record<string, unknown>,
      });
    });
  });
}

async function attributesOf(queueUrl: string): Promise<Record<string, string>> {
  const sqs = createSqsClient(target(), { requestTimeoutMs: 5_000 });
  const { Attributes = {} } = await sqs.send(
    new GetQueueAttributesCommand({ QueueUrl: queueUrl, AttributeNames: ["All"] }),
  );
  sqs.destroy();
  return Attributes;
}

function target(): Parameters<typeof createSqsClient>[0] {
  return {
    endpointUrl: testServices().REMIT_TEST_AWS_ENDPOINT_URL,
    region: "eu-central-1",
    credentials: { accessKeyId: "local", secretAccessKey: "local" },
  };
}

const ARN = "arn:aws:sqs:eu-central-1:000000000000";
const TOPIC_ARN = `arn:aws:sns:eu-central-1:000000000000:${prefix}-events`;

describe("remit aws setup", () => {
  test("with --dry-run says what is missing and makes none of it", async () => {
    const first = await setup(standIn(), "--dry-run");
    expect(first).toMatchObject({ exit: 0, out: { changed: false, environment: null } });
    expect(
      (first.out["changes"] as { resource: string }[]).map(({ resource }) => resource),
    ).toEqual([
      `queue ${prefix}-ledger-dlq`,
      `queue ${prefix}-ledger`,
      `topic ${prefix}-events`,
      `subscription of ${prefix}-ledger`,
    ]);
    expect(await setup(standIn(), "--dry-run")).toEqual(first);
  });

  test("makes everything, prints the settings for it, and a second run changes nothing", async () => {
    const first = await setup(standIn());
    const environment = first.out["environment"] as Record<string, string>;
    expect(first).toMatchObject({ exit: 0, out: { changed: true } });
    expect(environment).toEqual({
      AWS_ENDPOINT_URL: testServices().REMIT_TEST_AWS_ENDPOINT_URL,
      AWS_REGION: "eu-central-1",
      REMIT_TOPIC_ARN: TOPIC_ARN,
      REMIT_LEDGER_QUEUE_URL: expect.stringMatching(`/${prefix}-ledger$`) as string,
      REMIT_LEDGER_DLQ_URL: expect.stringMatching(`/${prefix}-ledger-dlq$`) as string,
    });
    const queue = await attributesOf(environment["REMIT_LEDGER_QUEUE_URL"] ?? "");
    const dlq = await attributesOf(environment["REMIT_LEDGER_DLQ_URL"] ?? "");
    expect(JSON.parse(queue["Policy"] ?? "")).toEqual({
      Version: "2012-10-17",
      Statement: [
        {
          Sid: "RemitTopicMaySend",
          Effect: "Allow",
          Principal: { Service: "sns.amazonaws.com" },
          Action: "sqs:SendMessage",
          Resource: `${ARN}:${prefix}-ledger`,
          Condition: { ArnEquals: { "aws:SourceArn": TOPIC_ARN } },
        },
      ],
    });
    expect(queue).toMatchObject({ VisibilityTimeout: "30", SqsManagedSseEnabled: "true" });
    expect(JSON.parse(queue["RedrivePolicy"] ?? "")).toEqual({
      deadLetterTargetArn: `${ARN}:${prefix}-ledger-dlq`,
      maxReceiveCount: 10,
    });
    expect(dlq["MessageRetentionPeriod"]).toBe("1209600");
    expect(JSON.parse(dlq["RedriveAllowPolicy"] ?? "")).toEqual({
      redrivePermission: "byQueue",
      sourceQueueArns: [`${ARN}:${prefix}-ledger`],
    });
    expect(await setup(standIn())).toEqual({
      exit: 0,
      out: { prefix, fifo: false, dryRun: false, changed: false, changes: [], environment },
    });
  });

  test("names and mends what drifted, and leaves what is somebody's own", async () => {
    const own = { Sid: "Ours", Effect: "Deny", Principal: "*", Action: "sqs:PurgeQueue" };
    const { out } = await setup(standIn());
    const { REMIT_LEDGER_QUEUE_URL: url = "" } = out["environment"] as Record<string, string>;
    const sqs = createSqsClient(target(), { requestTimeoutMs: 5_000 });
    const sns = createSnsClient(target(), { requestTimeoutMs: 5_000 });
    await sqs.send(
      new SetQueueAttributesCommand({
        QueueUrl: url,
        Attributes: { VisibilityTimeout: "60", Policy: JSON.stringify({ Statement: [own] }) },
      }),
    );
    const { Subscriptions = [] } = await sns.send(
      new ListSubscriptionsByTopicCommand({ TopicArn: TOPIC_ARN }),
    );
    const SubscriptionArn = Subscriptions[0]?.SubscriptionArn ?? "";
    await sns.send(
      new SetSubscriptionAttributesCommand({
        SubscriptionArn,
        AttributeName: "RawMessageDelivery",
        AttributeValue: "false",
      }),
    );

    const looked = await setup(standIn(), "--dry-run");
    const mended = await setup(standIn());
    expect(mended.out["changes"]).toEqual(looked.out["changes"]);
    expect(mended.out["changes"]).toMatchObject([
      { resource: `queue ${prefix}-ledger`, attribute: "VisibilityTimeout", from: "60", to: "30" },
      { resource: `queue ${prefix}-ledger`, attribute: "Policy" },
      { attribute: "RawMessageDelivery", from: "false", to: "true" },
    ]);
    const policy = (await attributesOf(url))["Policy"] ?? "";
    const subscription = await sns.send(new GetSubscriptionAttributesCommand({ SubscriptionArn }));
    expect(JSON.parse(policy)).toMatchObject({
      Statement: [{ Sid: "Ours" }, { Sid: "RemitTopicMaySend" }],
    });
    expect(subscription.Attributes).toMatchObject({ RawMessageDelivery: "true" });
    expect((await setup(standIn())).out["changes"]).toEqual([]);
    sqs.destroy();
    sns.destroy();
  });
});

describe("remit aws setup refuses", () => {
  test.each([
    ["no region", KEYS, "usage", /AWS_REGION is not set/],
    [
      "no credentials",
      { AWS_REGION: "eu-central-1", AWS_EC2_METADATA_DISABLED: "true" },
      "usage",
      /expected credentials of AWS, found none: set AWS_PROFILE/,
    ],
    [
      "no answer",
      { ...KEYS, AWS_REGION: "eu-central-1", AWS_ENDPOINT_URL: "http://127.0.0.1:1" },
      "broker_unreachable",
      /^expected SNS and SQS at http:\/\/127\.0\.0\.1:1, found nothing that answers/,
    ],
  ])("%s, and says what to do", async (_what, env, code, detail) => {
    const { exit, out } = await setup(env);
    expect({ exit, code: out["code"] }).toEqual({ exit: code === "usage" ? 2 : 5, code });
    expect(out["detail"]).toMatch(detail);
  });

  test.each([
    ["AccessDeniedException", /^AWS denies it \(not allowed: sqs:GetQueueUrl\): grant what docs/],
    ["InvalidClientTokenId", /^AWS does not accept the credentials \(InvalidClientTokenId\): sign/],
    ["ExpiredTokenException", /^AWS does not accept the credentials \(ExpiredTokenException\)/],
  ])("where AWS answers %s", async (type, detail) => {
    const server = createServer((_request, response) => {
      response.writeHead(403, { "content-type": "application/x-amz-json-1.0" });
      response.end(JSON.stringify({ __type: type, message: "not allowed: sqs:GetQueueUrl" }));
    });
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    const { port } = server.address() as AddressInfo;
    const env = { ...standIn(), AWS_ENDPOINT_URL: `http://127.0.0.1:${port}` };
    const { exit, out } = await setup(env);
    server.closeAllConnections();
    server.close();
    expect({ exit, code: out["code"] }).toEqual({ exit: 2, code: "usage" });
    expect(out["detail"]).toMatch(detail);
  });
});
