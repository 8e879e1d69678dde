import { setTimeout as delay } from "node:timers/promises";
import { PublishCommand } from "@aws-sdk/client-sns";
import { createSnsClient } from "../../src/messaging/aws-clients.ts";
import { eventually } from "../support/eventually.ts";
import { openFundedAccounts, useFlow } from "../support/flow.ts";
import { plugInto } from "../support/plug.ts";
import type { Plug } from "../support/plug.ts";
import { runRemit } from "../support/remit-command.ts";
import { untilReady, workerProcesses } from "../support/worker-process.ts";
import type { WorkerProcess } from "../support/worker-process.ts";

/** What a worker's log says of a payment on its way, by which ids it is found, and what it keeps to itself. */

jest.setTimeout(120_000);

const flow = useFlow();
const processes = workerProcesses();
const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT = `00-${TRACE_ID}-00f067aa0ba902b7-01`;
const SECRET = "never-to-be-seen";
let worker: WorkerProcess;
let database: Plug;

beforeAll(async () => {
  const url = new URL(flow().env["DATABASE_URL"] ?? "");
  database = await plugInto({ host: url.hostname, port: Number(url.port) });
  url.port = String(database.port);
  worker = await processes.start([], {
    ...flow().env,
    DATABASE_URL: url.href,
    AWS_SECRET_ACCESS_KEY: SECRET,
    REMIT_POLL_INTERVAL_MS: "100",
  });
  await untilReady(worker);
  await openFundedAccounts(flow());
});
afterAll(async () => {
  await processes.end();
  await database.close();
});

type Line = Readonly<Record<string, unknown>> & { readonly msg: string };

/** Each line is a document by itself, or the test fails. */
function lines(): Line[] {
  const whole = worker.log().slice(0, worker.log().lastIndexOf("\n"));
  return whole.split("\n").map((text) => JSON.parse(text) as Line);
}

async function line(msg: string, of: object): Promise<Line> {
  return await eventually(
    () => {
      const found = lines().find((one) => {
        if (one.msg !== msg) return false;
        return Object.entries(of).every(
          ([name, value]) => JSON.stringify(one[name]) === JSON.stringify(value),
        );
      });
      if (found === undefined) throw new Error(`no line ${msg}:\n${worker.log()}`);
      return found;
    },
    { timeoutMs: 20_000 },
  );
}

async function settledPayment(key: string, env = {}): Promise<string> {
  const words = ["pay", "--from", "alice", "--to", "shop", "--amount", "1.00", "--currency", "EUR"];
  const ran = await runRemit(flow(), [...words, "--key", key, "--wait", "--json"], env);
  expect(ran).toMatchObject({ exit: 0 });
  return (JSON.parse(ran.out) as { paymentId: string }).paymentId;
}

async function messageOf(paymentId: string): Promise<{ id: string; payload: string }> {
  const [row] = await flow().database.admin<{ id: string; payload: string }>(
    "SELECT id, payload::text FROM remit.outbox WHERE aggregate_id = $1 AND type = 'payment.created'",
    [paymentId],
  );
  return row ?? { id: "", payload: "" };
}

describe("the log of a worker", () => {
  test("says each step of a payment once, under the ids of the payment, the message, the run and the trace", async () => {
    const paymentId = await settledPayment("logged", { TRACEPARENT });
    const { id: messageId } = await messageOf(paymentId);
    const run = { runId: expect.stringMatching(/^[0-9a-f-]{36}$/), attempt: 1 };
    const recorded = await line("pay recorded", { paymentId });
    expect(recorded).toMatchObject({
      level: 30,
      operation: "pay",
      messageId,
      workflowId: "payment:default:logged",
      traceId: TRACE_ID,
      ...run,
    });
    await eventually(() => {
      const sent = lines().filter(({ msg }) => msg === "messages published");
      const messages = sent.flatMap((one) => one["messages"] as object[]);
      expect(messages).toContainEqual({ messageId, aggregateId: paymentId });
    });
    expect(await line("message booked", { messageId })).toMatchObject({
      level: 30,
      paymentId,
      transactionId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      workflowId: `ledger:${messageId}`,
      traceId: TRACE_ID,
      ...run,
    });
    const steps = lines().filter((one) => JSON.stringify(one).includes(messageId));
    expect(steps.map(({ msg }) => msg)).toEqual([
      "pay recorded",
      "messages published",
      "message booked",
    ]);
  });

  test("says that a request was repeated, refused, or contradicts its key", async () => {
    const paymentId = await settledPayment("again");
    const pay = async (key: string, amount: string): Promise<number | null> => {
      const from = ["--from", "alice", "--to", "shop", "--currency", "EUR"];
      const words = ["pay", ...from, "--amount", amount, "--key", key];
      return (await runRemit(flow(), words)).exit;
    };
    expect(await pay("again", "2.00")).toBe(4);
    expect(await line("pay contradictory", {})).toMatchObject({
      level: 40,
      code: "idempotency_key_reused",
      workflowId: "payment:default:again",
    });
    expect(await pay("too-much", "999999999.00")).toBe(4);
    const refused = await line("pay refused", { code: "insufficient_funds" });
    expect(refused).toMatchObject({ level: 30, workflowId: "payment:default:too-much" });
    // There is no payment, so there is no id of one.
    expect(refused).not.toHaveProperty("paymentId");
    expect(paymentId).not.toBe("");
  });

  test("says that a message came again", async () => {
    const paymentId = await settledPayment("twice");
    const { id: messageId, payload } = await messageOf(paymentId);
    await line("message booked", { messageId });
    const sns = createSnsClient(flow().aws, { requestTimeoutMs: 5_000 });
    const text = (StringValue: string) => ({ DataType: "String", StringValue });
    await sns.send(
      new PublishCommand({
        TopicArn: flow().topicArn,
        Message: payload,
        MessageAttributes: { type: text("payment.created"), capture: text("automatic") },
      }),
    );
    sns.destroy();
    expect(await line("message came again and is absorbed", { messageId })).toMatchObject({
      level: 30,
      receiveCount: 1,
    });
  });

  test("says nothing while nothing happens, however often it polls", async () => {
    await settledPayment("quiet");
    await eventually(async () => {
      const [open] = await flow().database.admin<{ count: string }>(
        "SELECT count(*) FROM remit.outbox WHERE status <> 'PUBLISHED'",
      );
      expect(open?.count).toBe("0");
    });
    await delay(500);
    const before = lines().length;
    await delay(2_000);
    expect(lines().slice(before)).toEqual([]);
  });

  test("says once who is away and once that it is back, and what failed where; no secret and no payment's words", async () => {
    await database.pull();
    await line("relay waits", { what: "database" });
    const words = [
      "pay",
      "--from",
      "alice",
      "--to",
      "shop",
      "--amount",
      "3.00",
      "--currency",
      "EUR",
    ];
    const more = ["--key", "in-the-dark", "--description", SECRET];
    const pending = runRemit(flow(), [...words, ...more]);
    const failed = await line("activity failed", { activity: "recordPayment" });
    expect(failed).toMatchObject({ level: 40, workflowId: "payment:default:in-the-dark" });
    expect(failed["err"]).toMatchObject({ code: "database_unreachable" });
    await database.mend();
    expect(await pending).toMatchObject({ exit: 0 });
    await line("relay goes on", { what: "database" });
    const away = lines().filter(({ msg }) => msg === "relay waits");
    expect(away).toHaveLength(1);
    expect(worker.log()).not.toContain(SECRET);
    const { password } = new URL(flow().env["DATABASE_URL"] ?? "");
    expect(password).not.toBe("");
    expect(worker.log()).not.toContain(password);
  });
});
