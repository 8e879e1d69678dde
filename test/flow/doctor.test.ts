import type { ChildProcess } from "node:child_process";
import {
  ListSubscriptionsByTopicCommand,
  SetSubscriptionAttributesCommand,
  UnsubscribeCommand,
} from "@aws-sdk/client-sns";
import type { SNSClient } from "@aws-sdk/client-sns";
import {
  DeleteQueueCommand,
  SendMessageCommand,
  SetQueueAttributesCommand,
} from "@aws-sdk/client-sqs";
import type { SQSClient } from "@aws-sdk/client-sqs";
import { brokerGroup } from "../../src/cli/doctor/broker.ts";
import { runGroup } from "../../src/cli/doctor/check.ts";
import type { CheckResult } from "../../src/cli/doctor/check.ts";
import { temporalGroup } from "../../src/cli/doctor/temporal.ts";
import { pauseRelays, resumeRelays } from "../../src/cli/relay.ts";
import { scheduleIds } from "../../src/domain/ids.ts";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";
import { complaintsOf, settingsOf } from "../support/doctor.ts";
import { eventually } from "../support/eventually.ts";
import { useFlow } from "../support/flow.ts";
import { runRemit } from "../support/remit-command.ts";
import { startStrictBroker } from "../support/strict-broker.ts";

jest.setTimeout(60_000);
const flow = useFlow();
let worker: ChildProcess;
let sns: SNSClient;
let sqs: SQSClient;

beforeAll(() => {
  sns = createSnsClient(flow().aws, { requestTimeoutMs: 5_000 });
  sqs = createSqsClient(flow().aws, { requestTimeoutMs: 5_000 });
});
afterAll(() => {
  sns.destroy();
  sqs.destroy();
});

interface Situation {
  readonly env?: Record<string, string>;
  readonly now?: () => number;
}

async function temporalComplaints({ env = {}, now = Date.now }: Situation = {}) {
  const settings = settingsOf({ ...flow().env, ...env });
  return complaintsOf(await runGroup(temporalGroup(settings, { now })));
}

async function brokerComplaints({ env = {}, now = Date.now }: Situation = {}) {
  const read = settingsOf({ ...flow().env, ...env });
  // A process finds them in its environment; this one has none of AWS's variables.
  const settings = { ...read, aws: { ...flow().aws, ...read.aws } };
  return complaintsOf(await runGroup(brokerGroup(settings, { now, isProbed: false })));
}

function prefix(): string {
  return /:([^:]+)-events$/.exec(flow().topicArn)?.[1] ?? "";
}

/** Where Temporal's own command is to go. */
function target(namespace = prefix()): string {
  return `--address ${flow().env["TEMPORAL_ADDRESS"]} --namespace ${namespace}`;
}

function setup(): string {
  return `remit aws setup --prefix ${prefix()}`;
}

describe("remit doctor, of Temporal", () => {
  test("names what is missing before the first worker, and nothing after it", async () => {
    const before = await temporalComplaints();
    worker = await flow().startWorker();
    // The relay's first report and the list of what runs come a moment after its start.
    await eventually(async () => expect(await temporalComplaints()).toEqual([]), {
      timeoutMs: 30_000,
    });
    expect(before).toMatchObject([
      {
        name: "temporal.schedules",
        status: "fail",
        found: `missing: ${Object.values(scheduleIds).join(", ")}`,
        fix: "start a worker with the role payments: it makes them (remit worker)",
      },
      {
        name: "temporal.workers",
        status: "fail",
        found: expect.stringMatching(/^nobody polls payments \(workflow tasks\), /),
        fix: "start a worker: remit worker (or with --role for the missing one), in this namespace",
      },
      {
        name: "temporal.relays",
        status: "fail",
        found: "missing: outbox-relay:0-63; its events wait",
        fix: expect.stringMatching(/^start a worker with the roles payments and relay/),
      },
      { name: "temporal.clock", status: "unknown" },
    ]);
  });

  test("names a Schedule that is paused, and the command that goes on", async () => {
    const handle = flow().client.schedule.getHandle(scheduleIds.retention);
    await handle.pause("planted");
    const named = await temporalComplaints();
    await handle.unpause();
    expect(named).toEqual([
      {
        name: "temporal.schedules",
        status: "fail",
        found: "paused: remit-retention",
        fix: `temporal schedule toggle ${target()} --schedule-id remit-retention --unpause --reason "remit doctor"`,
      },
    ]);
    expect(await temporalComplaints()).toEqual([]);
  });

  test("names a relay that is paused, by whom and why", async () => {
    await pauseRelays(flow().client, "maintenance of the broker");
    const named = await temporalComplaints();
    await resumeRelays(flow().client);
    expect(named[0]).toEqual({
      name: "temporal.relays",
      status: "warn",
      found: expect.stringMatching(/^outbox-relay:0-63: paused \(maintenance of the broker\)/),
      fix: "remit relay resume",
    });
    await eventually(async () => expect(await temporalComplaints()).toEqual([]), {
      timeoutMs: 20_000,
    });
  });

  test("names relays of another number of ranges", async () => {
    const named = await temporalComplaints({ env: { REMIT_RELAY_SHARDS: "2" } });
    expect(named).toMatchObject([
      {
        name: "temporal.relays",
        status: "fail",
        found: "missing: outbox-relay:0-31, outbox-relay:32-63; its events wait",
      },
    ]);
  });

  test("names a search attribute that is missing and one of another type, each with its command", async () => {
    const { connection } = flow().client;
    const namespace = prefix();
    const change = async (name: string, type: number): Promise<void> => {
      await connection.operatorService.removeSearchAttributes({
        namespace,
        searchAttributes: [name],
      });
      if (type > 0) {
        await connection.operatorService.addSearchAttributes({
          namespace,
          searchAttributes: { [name]: type },
        });
      }
    };
    const INT = 3;
    const KEYWORD = 2;
    const named = async (): Promise<CheckResult | undefined> =>
      (await temporalComplaints()).find(({ name }) => name === "temporal.search_attributes");
    await change("RemitCurrency", 0);
    const missing = await eventually(async () => {
      const found = await named();
      expect(found).toBeDefined();
      return found;
    });
    await change("RemitCurrency", INT).catch(async () => {
      await connection.operatorService.addSearchAttributes({
        namespace,
        searchAttributes: { RemitCurrency: INT },
      });
    });
    const other = await eventually(async () => {
      const found = await named();
      expect(found?.found).toMatch(/^not of type/);
      return found;
    });
    await change("RemitCurrency", KEYWORD);
    expect([missing, other]).toEqual([
      {
        name: "temporal.search_attributes",
        status: "fail",
        found: "missing: RemitCurrency; no payment can start",
        fix: `temporal operator search-attribute create ${target()} --name RemitCurrency --type Keyword`,
      },
      {
        name: "temporal.search_attributes",
        status: "fail",
        found: "not of type Keyword: RemitCurrency",
        fix: `temporal operator search-attribute remove ${target()} --name RemitCurrency --yes && temporal operator search-attribute create ${target()} --name RemitCurrency --type Keyword`,
      },
    ]);
    await eventually(async () => expect(await named()).toBeUndefined());
  });

  test("names a namespace that isn't there, once", async () => {
    const named = await temporalComplaints({ env: { TEMPORAL_NAMESPACE: "absent" } });
    const failed = named.filter(({ status }) => status === "fail");
    expect(failed).toEqual([
      {
        name: "temporal.reachable",
        status: "fail",
        found: expect.stringMatching(/^namespace absent does not exist at /),
        fix: `temporal operator namespace create ${target("absent")} --retention 720h, or mend TEMPORAL_NAMESPACE`,
      },
    ]);
  });

  test("names ended runs that are kept for less than a day", async () => {
    const { workflowService } = flow().client;
    const keep = async (seconds: number): Promise<void> => {
      await workflowService.updateNamespace({
        namespace: prefix(),
        config: { workflowExecutionRetentionTtl: { seconds: seconds as unknown as Long } },
      });
    };
    await keep(3_600);
    const named = await temporalComplaints();
    await keep(86_400);
    expect(named).toEqual([
      {
        name: "temporal.retention",
        status: "warn",
        found: "ended runs are kept for 1 h",
        fix: `temporal operator namespace update ${target()} --retention 720h`,
      },
    ]);
    expect(await temporalComplaints()).toEqual([]);
  });

  test("names a build that gets no new work", async () => {
    const named = await temporalComplaints({ env: { REMIT_BUILD_ID: "b2" } });
    expect(named).toEqual([
      {
        name: "temporal.deployment",
        status: "fail",
        found: "no worker of deployment remit has come to Temporal yet",
        fix: "start a worker with REMIT_BUILD_ID=b2",
      },
    ]);
  });

  test("names a clock that is ahead, and a poller that is silent for longer than a poll lasts", async () => {
    const behind = await temporalComplaints({ now: () => Date.now() - 60_000 });
    const later = await temporalComplaints({ now: () => Date.now() + 180_000 });
    expect(behind).toMatchObject([
      { name: "temporal.clock", status: "fail", found: expect.stringMatching(/ahead of/) },
    ]);
    expect(later.map(({ name }) => name)).toContain("temporal.workers");
  });

  test("names supervision that leaves something out, with the reason, until it doesn't", async () => {
    const supervisor = flow().client.schedule.getHandle(scheduleIds.supervisor);
    const upkeep = async (): Promise<CheckResult | undefined> =>
      (await temporalComplaints()).find(({ name }) => name === "temporal.upkeep");
    await flow().database.admin("REVOKE SELECT ON remit.refunds FROM remit_app");
    try {
      await supervisor.trigger();
      await eventually(
        async () =>
          expect(await upkeep()).toEqual({
            name: "temporal.upkeep",
            status: "warn",
            found: expect.stringMatching(/^supervisor-.* left out [1-9]\d*: SQLSTATE 42501$/),
            fix: expect.stringMatching(/^mend what the reason names/),
          }),
        { timeoutMs: 20_000 },
      );
    } finally {
      await flow().database.admin("GRANT SELECT ON remit.refunds TO remit_app");
    }
    await supervisor.trigger();
    await eventually(async () => expect(await upkeep()).toBeUndefined(), { timeoutMs: 20_000 });
  });

  test("names upkeep that ended badly, and the commands that show it and run it again", async () => {
    await flow().kill(worker);
    const retention = flow().client.schedule.getHandle(scheduleIds.retention);
    await retention.trigger();
    const query = "WorkflowType = 'retention' AND ExecutionStatus = 'Running'";
    const [workflowId = ""] = await eventually(async () => {
      const running: string[] = [];
      for await (const run of flow().client.workflow.list({ query })) running.push(run.workflowId);
      expect(running).toHaveLength(1);
      return running;
    });
    await flow().client.workflow.getHandle(workflowId).terminate("planted");
    worker = await flow().startWorker();
    const upkeep = async (): Promise<CheckResult | undefined> =>
      (await temporalComplaints()).find(({ name }) => name === "temporal.upkeep");
    await eventually(
      async () =>
        expect(await upkeep()).toEqual({
          name: "temporal.upkeep",
          status: "fail",
          found: `${workflowId} ended as TERMINATED`,
          fix: `mend its failure, then run it again: temporal workflow show ${target()} --workflow-id ${workflowId}; temporal schedule trigger ${target()} --schedule-id remit-retention`,
        }),
      { timeoutMs: 20_000 },
    );
    await retention.trigger();
    await eventually(async () => expect(await upkeep()).toBeUndefined(), { timeoutMs: 20_000 });
  });

  test("takes the last report of a worker that died for no clock", async () => {
    const later = async (): Promise<CheckResult | undefined> => {
      const named = await temporalComplaints({ now: () => Date.now() + 60_000 });
      return named.find(({ name }) => name === "temporal.clock");
    };
    expect(await later()).toMatchObject({ status: "fail", found: expect.stringMatching(/behind/) });
    await flow().kill(worker);
    await eventually(async () => expect(await later()).toMatchObject({ status: "unknown" }), {
      timeoutMs: 20_000,
    });
    await flow().startWorker();
    await eventually(async () => expect(await temporalComplaints()).toEqual([]), {
      timeoutMs: 30_000,
    });
  });
});

type Long = NonNullable<Parameters<typeof Number>[0]>;

async function subscriptionArn(): Promise<string> {
  const { Subscriptions = [] } = await sns.send(
    new ListSubscriptionsByTopicCommand({ TopicArn: flow().topicArn }),
  );
  return Subscriptions[0]?.SubscriptionArn ?? "";
}

async function setOfQueue(attributes: Record<string, string>, url = flow().ledgerQueueUrl) {
  await sqs.send(new SetQueueAttributesCommand({ QueueUrl: url, Attributes: attributes }));
}

async function setOfSubscription(AttributeName: string, AttributeValue: string): Promise<void> {
  await sns.send(
    new SetSubscriptionAttributesCommand({
      SubscriptionArn: await subscriptionArn(),
      AttributeName,
      AttributeValue,
    }),
  );
}

const OTHER_FILTER = JSON.stringify({ type: ["payment.created"] });

interface PlantedAtBroker {
  readonly plant: () => Promise<void>;
  readonly name: string;
  readonly status?: "fail" | "warn";
  readonly found: RegExp;
}

/** Each is mended by `remit aws setup`, as the fix says. */
const MISCONFIGURATIONS: [string, PlantedAtBroker][] = [
  [
    "a subscription that was lost",
    {
      plant: async () => {
        await sns.send(new UnsubscribeCommand({ SubscriptionArn: await subscriptionArn() }));
      },
      name: "broker.subscription",
      found: /^the queue is not subscribed to the topic: nothing is booked$/,
    },
  ],
  [
    "a filter that was removed",
    {
      plant: async () => await setOfSubscription("FilterPolicy", "{}"),
      name: "broker.filter",
      found: /^the filter is (\{\}|missing), which isn't ours/,
    },
  ],
  [
    "another filter",
    {
      plant: async () => await setOfSubscription("FilterPolicy", OTHER_FILTER),
      name: "broker.filter",
      found: /^the filter is \{"type":\["payment.created"\]\}, which isn't ours/,
    },
  ],
  [
    "raw delivery that is off",
    {
      plant: async () => await setOfSubscription("RawMessageDelivery", "false"),
      name: "broker.raw_delivery",
      status: "warn",
      found: /^wrapped by SNS/,
    },
  ],
  [
    "a queue without a redrive policy",
    {
      plant: async () => await setOfQueue({ RedrivePolicy: "" }),
      name: "broker.redrive",
      found: /^the queue has no redrive policy/,
    },
  ],
  [
    "a queue that gives up after the first try",
    {
      plant: async () => {
        const deadLetterTargetArn = `arn:aws:sqs:us-east-1:000000000000:${prefix()}-ledger-dlq`;
        await setOfQueue({
          RedrivePolicy: JSON.stringify({ deadLetterTargetArn, maxReceiveCount: 1 }),
        });
      },
      name: "broker.redrive",
      found: /^maxReceiveCount is 1, expected 5 to 100$/,
    },
  ],
  [
    "a queue without a policy",
    {
      plant: async () => await setOfQueue({ Policy: "" }),
      name: "broker.policy",
      found: /^the topic may not send to the queue: nothing arrives$/,
    },
  ],
  [
    "a visibility timeout shorter than the intake's",
    {
      plant: async () => await setOfQueue({ VisibilityTimeout: "5" }),
      name: "broker.visibility",
      status: "warn",
      found: /^5 s, where the intake asks for 30 s$/,
    },
  ],
  [
    "dead letters that are forgotten before the queue's messages",
    {
      plant: async () => await setOfQueue({ MessageRetentionPeriod: "60" }, flow().ledgerDlqUrl),
      name: "broker.retention",
      found: /^the dead-letter queue keeps 60 s, less than the queue's 345600 s/,
    },
  ],
  [
    "a dead-letter queue that was deleted",
    {
      plant: async () => {
        await sqs.send(new DeleteQueueCommand({ QueueUrl: flow().ledgerDlqUrl }));
      },
      name: "broker.dlq",
      found: /-ledger-dlq does not exist$/,
    },
  ],
];

describe("remit doctor, of SNS and SQS", () => {
  test.each(MISCONFIGURATIONS)(
    "names %s, and remit aws setup ends it",
    async (_what, { plant, name, status = "fail", found }) => {
      expect(await brokerComplaints()).toEqual([]);
      await plant();
      const named = await brokerComplaints();
      await ensureTopology(flow().aws, { prefix: prefix() });
      const [complaint] = named.filter(({ status: given }) => given !== "unknown");
      expect(complaint).toEqual({
        name,
        status,
        found: expect.stringMatching(found),
        fix: expect.stringContaining(setup()),
      });
      expect(await brokerComplaints()).toEqual([]);
    },
  );

  test("names an inbox that forgets before the queues do, with the least that is enough", async () => {
    const env = { REMIT_INBOX_RETENTION_HOURS: "168" };
    const named = await brokerComplaints({ env });
    const least = named[0]?.fix?.split("=")[1] ?? "";
    expect(named).toMatchObject([
      { name: "broker.retention", status: "fail", fix: "REMIT_INBOX_RETENTION_HOURS=456" },
    ]);
    expect(await brokerComplaints({ env: { REMIT_INBOX_RETENTION_HOURS: least } })).toEqual([]);
  });

  test.each([
    ["REMIT_TOPIC_ARN", "arn:aws:sns:us-east-1:000000000000:absent-events", "broker.topic"],
    ["REMIT_LEDGER_QUEUE_URL", "http://localhost/000000000000/absent", "broker.queue"],
    ["REMIT_LEDGER_DLQ_URL", "http://localhost/000000000000/absent", "broker.dlq"],
    ["REMIT_LEDGER_DLQ_URL", "", "broker.dlq"],
    ["AWS_REGION", "eu-central-1", "broker.topic"],
  ])("names %s=%s", async (variable, value, name) => {
    const named = await brokerComplaints({ env: { [variable]: value } });
    const failed = named.filter(({ status }) => status === "fail");
    expect(failed.map((result) => result.name)).toEqual([name]);
    expect(failed[0]?.fix).toContain(variable);
  });

  test("names a dead-letter queue that isn't the one to which the queue gives up", async () => {
    const other = await ensureTopology(flow().aws, { prefix: `${prefix()}-other` });
    const named = await brokerComplaints({ env: { REMIT_LEDGER_DLQ_URL: other.ledgerDlqUrl } });
    expect(named).toMatchObject([
      {
        name: "broker.redrive",
        status: "fail",
        found: expect.stringMatching(/^it gives up to .*-ledger-dlq, and REMIT_LEDGER_DLQ_URL is /),
      },
    ]);
  });

  test("names dead letters that wait", async () => {
    const sent = new SendMessageCommand({ QueueUrl: flow().ledgerDlqUrl, MessageBody: "planted" });
    await sqs.send(sent);
    expect(await brokerComplaints()).toMatchObject([
      {
        name: "broker.dead_letters",
        status: "warn",
        found: "1 dead letters",
        fix: "remit dlq peek",
      },
    ]);
  });

  test("names a broker's clock that is away from ours", async () => {
    const named = await brokerComplaints({ now: () => Date.now() + 60_000 });
    expect(named).toContainEqual(expect.objectContaining({ name: "broker.clock", status: "fail" }));
  });
});

describe("the command", () => {
  test("prints one document, exits 6 where something fails, and shows no secret", async () => {
    const env = { AWS_SECRET_ACCESS_KEY: "secret-of-aws", REMIT_SEND_TIMEOUT_MS: "9999" };
    const { exit, out, err } = await runRemit(flow(), ["doctor", "--json"], env);
    expect([exit, err]).toEqual([6, ""]);
    const report = JSON.parse(out) as { checks: CheckResult[] };
    expect(report).toMatchObject({ ok: false, code: "doctor", type: "urn:remit:problem:doctor" });
    const failed = report.checks.filter(({ status }) => status === "fail");
    // The tests' server has nothing to lose and runs without fsync.
    expect(failed.map(({ name }) => name)).toEqual(["settings.valid", "database.durability"]);
    expect(out).not.toContain("secret-of-aws");
    expect(out).not.toContain(new URL(flow().env["DATABASE_URL"] ?? "").password);
  });

  test("judges the others where a dependency is frozen, and ends by itself", async () => {
    const broker = await startStrictBroker(flow().aws.endpointUrl ?? "");
    for (const action of ["GetTopicAttributes", "GetQueueAttributes", "GetQueueAttributes"]) {
      broker.next(action, { kind: "delay", ms: 7_000 });
    }
    const ran = await runRemit(flow(), ["doctor"], { AWS_ENDPOINT_URL: broker.url });
    await broker.close();
    expect(ran.exit).toBe(6);
    const lines = ran.out.split("\n");
    expect(lines.filter((line) => /^(FAIL|\?) +broker/.test(line))).toEqual([
      expect.stringMatching(/broker\.reachable .*found nothing that answers \(TimeoutError\)$/),
      expect.stringMatching(/broker\.topic +not judged: see broker\.reachable \(and 13 more\)$/),
    ]);
    expect(lines).toContainEqual(expect.stringMatching(/^ok +database\.reachable /));
    expect(lines).toContainEqual(expect.stringMatching(/^ok +temporal\.reachable /));
  });

  test("publishes nothing unless --probe asks for it", async () => {
    const broker = await startStrictBroker(flow().aws.endpointUrl ?? "");
    const env = { AWS_ENDPOINT_URL: broker.url };
    await runRemit(flow(), ["doctor"], env);
    const asked = new Set(broker.calls.map(({ action }) => action));
    const { out } = await runRemit(flow(), ["doctor", "--probe"], env);
    const probed = new Set(broker.calls.map(({ action }) => action));
    await broker.close();
    expect([...asked].filter((action) => !/^(Get|List)/.test(action))).toEqual([]);
    expect([...probed].filter((action) => !/^(Get|List)/.test(action))).toEqual(["Publish"]);
    expect(out).toMatch(/^ok +broker\.publish +SNS took it as /m);
  });
});
