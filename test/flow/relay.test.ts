import type { ChildProcess } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { GetQueueAttributesCommand } from "@aws-sdk/client-sqs";
import { runningRelayIds } from "../../src/client/running-relays.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { outboxStatus } from "../../src/database/outbox-view-queries.ts";
import { scheduleIds, workflowIds } from "../../src/domain/ids.ts";
import { createSqsClient } from "../../src/messaging/aws-clients.ts";
import {
  relayPauseUpdate,
  relayResumeUpdate,
  relayStatusQuery,
} from "../../src/workflows/messages.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { plugInto } from "../support/plug.ts";
import type { Plug } from "../support/plug.ts";
import { testServices } from "../support/services.ts";
import { untilReady, workerProcesses } from "../support/worker-process.ts";
import type { WorkerProcesses } from "../support/worker-process.ts";

/** The relay and the intake while what they depend on is away, silent or frozen: real processes, real sockets. */
const flow = useFlow();
/** `npm run test:long-outage`: for how long brokers and Temporal stay away. */
const OUTAGE_MS = Number(process.env["REMIT_TEST_OUTAGE_MS"] ?? 0);
const plugs: Plug[] = [];
let processes: WorkerProcesses;
let worker: ChildProcess;

beforeAll(async () => {
  worker = await flow().startWorker();
  await openFundedAccounts(flow());
  await flow().kill(worker);
}, 60_000);
beforeEach(() => {
  processes = workerProcesses();
});
afterEach(async () => {
  await flow().kill(worker);
  await processes.end();
  await Promise.all(plugs.splice(0).map(async (plug) => await plug.close()));
  await expectInvariants(flow().database, 60);
}, 60_000);

/** Starts a worker of some roles and waits until it polls. */
async function ready(words: readonly string[], env: Record<string, string>): Promise<void> {
  await untilReady(await processes.start(words, env));
}

async function plugFor(address: string): Promise<Plug> {
  const { hostname, port } = new URL(address);
  const plug = await plugInto({ host: hostname, port: Number(port) });
  plugs.push(plug);
  return plug;
}

/** The address of a server with the plug between. */
function through(plug: Plug, address: string): string {
  const url = new URL(address);
  url.hostname = "127.0.0.1";
  url.port = String(plug.port);
  return url.href;
}

async function payMany(count: number): Promise<string[]> {
  return await Promise.all(
    Array.from(
      { length: count },
      async () => (await flow().payments.pay(aRequest({ amount: "1.00" }))).paymentId,
    ),
  );
}

async function allSettled(paymentIds: readonly string[], timeoutMs = 60_000): Promise<void> {
  await eventually(
    async () => {
      const payments = await Promise.all(
        paymentIds.map(async (id) => await getPayment(flow().database.app, id)),
      );
      expect(payments.map((payment) => payment?.status)).toEqual(paymentIds.map(() => "settled"));
    },
    { timeoutMs },
  );
}

/** What outages burned: attempts of rows, and letters of the dead. */
async function burned(): Promise<{ attempts: number; dead: number; deadLetters: number }> {
  const [row] = await flow().database.admin<{ attempts: number }>(
    "SELECT coalesce(max(attempts), 0)::int AS attempts FROM remit.outbox",
  );
  const { dead } = await outboxStatus(flow().database.app);
  const sqs = createSqsClient(flow().aws, { requestTimeoutMs: 5_000 });
  const { Attributes } = await sqs.send(
    new GetQueueAttributesCommand({
      QueueUrl: flow().ledgerDlqUrl,
      AttributeNames: ["ApproximateNumberOfMessages"],
    }),
  );
  sqs.destroy();
  const deadLetters = Number(Attributes?.ApproximateNumberOfMessages);
  return { attempts: row?.attempts ?? 0, dead, deadLetters };
}

/** The transactions that wrote what waits. */
async function versions(): Promise<Set<string>> {
  const rows = await flow().database.admin<{ version: string }>(
    "SELECT DISTINCT xmin::text AS version FROM remit.outbox WHERE status = 'PENDING'",
  );
  return new Set(rows.map(({ version }) => version));
}

const NOTHING = { attempts: 0, dead: 0, deadLetters: 0 };

describe("another number of ranges", () => {
  test("takes over by a restart, with the pause that an operator had asked for, and the old relay ends", async () => {
    const { client } = flow();
    worker = await flow().startWorker({ REMIT_RELAY_SHARDS: "1" });
    const old = client.workflow.getHandle(workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }));
    await eventually(async () => await old.query(relayStatusQuery));
    await old.executeUpdate(relayPauseUpdate, { args: [{ reason: "broker maintenance" }] });
    await eventually(async () => expect(await runningRelayIds(client)).toEqual([old.workflowId]));
    await flow().kill(worker);

    worker = await flow().startWorker({ REMIT_RELAY_SHARDS: "3" });
    const ranges = [
      { fromShard: 0, toShard: 20 },
      { fromShard: 21, toShard: 41 },
      { fromShard: 42, toShard: 63 },
    ];
    const relays = ranges.map((range) => client.workflow.getHandle(workflowIds.outboxRelay(range)));
    for (const relay of relays) {
      const state = await eventually(async () => await relay.query(relayStatusQuery), {
        timeoutMs: 30_000,
      });
      expect(state).toMatchObject({ mode: "paused", reason: "broker maintenance" });
    }
    await eventually(async () => expect((await old.describe()).status.name).toBe("COMPLETED"), {
      timeoutMs: 30_000,
    });
    const paymentIds = await payMany(12);
    expect((await outboxStatus(flow().database.app)).pending).toBeGreaterThanOrEqual(12);
    for (const relay of relays) await relay.executeUpdate(relayResumeUpdate);
    await allSettled(paymentIds);
  }, 120_000);

  test("back to one is the same way", async () => {
    worker = await flow().startWorker({ REMIT_RELAY_SHARDS: "1" });
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await eventually(async () => expect((await relay.describe()).status.name).toBe("RUNNING"), {
      timeoutMs: 30_000,
    });
    await allSettled(await payMany(5));
  }, 120_000);
});

describe("a pause that comes while the window's worker lies dead", () => {
  test("is kept by the same run: the lost window ends without a word, and nothing goes out until resumed", async () => {
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    worker = await flow().startWorker();
    await allSettled(await payMany(1));
    const { runId } = await relay.describe();
    await flow().kill(worker);
    worker = await flow().startWorker();

    await relay.executeUpdate(relayPauseUpdate, { args: [{ reason: "broker maintenance" }] });

    expect(await relay.describe()).toMatchObject({ runId, status: { name: "RUNNING" } });
    expect(await relay.query(relayStatusQuery)).toMatchObject({ mode: "paused" });
    const paymentIds = await payMany(2);
    expect((await outboxStatus(flow().database.app)).pending).toBeGreaterThanOrEqual(2);
    await relay.executeUpdate(relayResumeUpdate);
    await allSettled(paymentIds);
  }, 120_000);
});

describe("a relay that an operator terminates", () => {
  test("is started again by the supervisor's Schedule, and what waited goes out", async () => {
    const { client } = flow();
    worker = await flow().startWorker();
    await allSettled(await payMany(2));
    const relay = client.workflow.getHandle(workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }));
    await relay.terminate("by hand");
    const paymentIds = await payMany(3);
    const supervisor = client.schedule.getHandle(scheduleIds.supervisor);
    await eventually(async () => {
      await supervisor.trigger();
      expect((await relay.describe()).status.name).toBe("RUNNING");
    });
    await allSettled(paymentIds);
  }, 120_000);
});

describe("a broker that is away", () => {
  test.each(["refuses", "is silent"])(
    "and %s burns no attempt and buries nothing; all goes on by itself when it is back",
    async (how) => {
      const address = testServices().REMIT_TEST_AWS_ENDPOINT_URL;
      const plug = await plugFor(address);
      worker = await flow().startWorker({
        AWS_ENDPOINT_URL: through(plug, address),
        REMIT_SEND_TIMEOUT_MS: "1000",
      });
      await allSettled(await payMany(2));
      if (how === "refuses") await plug.pull();
      else plug.mute();
      const paymentIds = await payMany(20);
      const { client } = flow();
      const relay = client.workflow.getHandle(
        workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
      );
      // Several rounds of backoff, seen from outside: each leaves the rows that it gave back with a version of their own.
      const before = await versions();
      const rounds = new Set<string>();
      await eventually(
        async () => {
          for (const version of await versions()) if (!before.has(version)) rounds.add(version);
          expect(rounds.size).toBeGreaterThanOrEqual(4);
        },
        { timeoutMs: 60_000 },
      );
      await delay(OUTAGE_MS);
      expect((await relay.describe()).status.name).toBe("RUNNING");
      expect(await burned()).toEqual(NOTHING);
      await plug.mend();
      await allSettled(paymentIds);
      expect(await burned()).toEqual(NOTHING);
    },
    150_000 + OUTAGE_MS,
  );
});

describe("Temporal away from the consumer", () => {
  test(
    "fills no dead-letter queue: what was received goes back, nothing more is received, and all is booked after it",
    async () => {
      const address = `http://${testServices().REMIT_TEST_TEMPORAL_ADDRESS}`;
      const plug = await plugFor(address);
      // The payments and the relay work all the while; only the consumer has lost Temporal.
      await ready(["--role", "payments,relay"], flow().env);
      await ready(["--role", "ledger"], {
        ...flow().env,
        TEMPORAL_ADDRESS: `127.0.0.1:${plug.port}`,
      });
      await allSettled(await payMany(2));
      await plug.pull();
      const paymentIds = await payMany(30);
      await eventually(
        async () => expect((await outboxStatus(flow().database.app)).pending).toBe(0),
        {
          timeoutMs: 30_000,
        },
      );
      // Longer than ten times the visibility with which a message is given back: ten receives would bury it.
      await delay(Math.max(25_000, OUTAGE_MS));
      expect(await burned()).toEqual(NOTHING);
      await plug.mend();
      await allSettled(paymentIds, 90_000);
      expect(await burned()).toEqual(NOTHING);
    },
    180_000 + OUTAGE_MS,
  );
});

describe("a worker frozen with a batch in its hands", () => {
  test("loses its lease: another one publishes, the late mark touches nothing, nothing is lost or booked twice", async () => {
    const address = testServices().REMIT_TEST_AWS_ENDPOINT_URL;
    const plug = await plugFor(address);
    const lease = { REMIT_LEASE_MS: "4000", REMIT_SEND_TIMEOUT_MS: "1500" };
    worker = await flow().startWorker({ AWS_ENDPOINT_URL: through(plug, address), ...lease });
    await allSettled(await payMany(2));
    plug.mute();
    const paymentIds = await payMany(10);
    await eventually(async () => {
      const rows = await flow().database.admin(
        "SELECT FROM remit.outbox WHERE lease_until > now() AND status = 'PENDING'",
      );
      expect(rows.length).toBeGreaterThan(0);
    });
    worker.kill("SIGSTOP");
    const second = await flow().startWorker(lease);
    await allSettled(paymentIds, 90_000);
    worker.kill("SIGCONT");
    await plug.mend();
    await allSettled(await payMany(5));
    const [row] = await flow().database.admin<{ doubled: string }>(
      "SELECT count(*) AS doubled FROM (SELECT FROM remit.ledger_transactions GROUP BY payment_id, kind HAVING count(*) > 1) d",
    );
    expect(row?.doubled).toBe("0");
    await flow().kill(second);
  }, 180_000);
});

describe("half-open connections to PostgreSQL", () => {
  test("answer nothing and close nothing: the worker notices, connects anew and settles what came meanwhile", async () => {
    const plug = await plugFor(flow().database.url);
    worker = await flow().startWorker({ DATABASE_URL: through(plug, flow().database.url) });
    await allSettled(await payMany(2));
    plug.halfOpen();
    const paymentIds = await payMany(10);
    await allSettled(paymentIds, 90_000);
    expect(new Set(paymentIds).size).toBe(10);
  }, 150_000);
});
