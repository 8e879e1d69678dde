import { workflowIds } from "../../src/domain/ids.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { plugInto } from "../support/plug.ts";
import type { Plug } from "../support/plug.ts";
import { testServices } from "../support/services.ts";
import { untilReady, workerProcesses } from "../support/worker-process.ts";
import type { Probe, WorkerProcess } from "../support/worker-process.ts";

jest.setTimeout(120_000);
const flow = useFlow();
const processes = workerProcesses();
const plugs: Record<string, Plug> = {};
let worker: WorkerProcess;
let firstAnswer: Probe;

beforeAll(async () => {
  const database = new URL(flow().database.url);
  const broker = new URL(flow().aws.endpointUrl ?? "");
  const [host = "", port] = testServices().REMIT_TEST_TEMPORAL_ADDRESS.split(":");
  plugs["database"] = await plugInto({ host: database.hostname, port: Number(database.port) });
  plugs["temporal"] = await plugInto({ host, port: Number(port) });
  plugs["broker"] = await plugInto({ host: broker.hostname, port: Number(broker.port) });
  database.port = String(plugs["database"].port);
  worker = await processes.start([], {
    ...flow().env,
    DATABASE_URL: database.href,
    TEMPORAL_ADDRESS: `127.0.0.1:${plugs["temporal"].port}`,
    AWS_ENDPOINT_URL: `http://127.0.0.1:${plugs["broker"].port}`,
    REMIT_POLL_INTERVAL_MS: "200",
  });
  firstAnswer = await worker.probe("/readyz");
  await untilReady(worker);
  await openFundedAccounts(flow());
});
afterAll(async () => {
  await processes.end();
  await Promise.all(Object.values(plugs).map(async (plug) => await plug.close()));
});

async function red(name: string, reason: RegExp): Promise<void> {
  await eventually(
    async () => {
      const { status, ok, red: names, reasons } = await worker.probe("/readyz");
      expect({ status, ok }).toEqual({ status: 503, ok: false });
      expect(names).toContain(name);
      expect(reasons[name]).toMatch(reason);
    },
    { timeoutMs: 30_000 },
  );
}

describe("the probes of a worker", () => {
  test("are answered while it starts, and it is not ready before everything polls", async () => {
    expect(firstAnswer).toMatchObject({ status: 503, ok: false });
    expect(firstAnswer.reasons["phase"]).toBe("starting");
    expect((await worker.probe("/readyz")).reasons).toEqual({
      phase: "running",
      database: "PostgreSQL answers",
      temporal: "Temporal answers",
      broker: "no send failed",
      listen: "commits wake the relay",
      progress: "no event waits",
      workers: expect.stringContaining("relay: RUNNING") as string,
      intake: "reads the ledger's queue",
    });
  });

  test.each([
    ["database", "pull", /^PostgreSQL does not answer/],
    ["database", "mute", /^PostgreSQL does not answer|^no answer within/],
    ["temporal", "pull", /^Temporal does not answer/],
    ["temporal", "mute", /^Temporal does not answer|^no answer within/],
  ] as const)(
    "say %s is away after a %s, stay alive, and are green again by themselves",
    async (name, outage, reason) => {
      await plugs[name]?.[outage]();
      await red(name, reason);
      if (name === "database") await red("listen", /^deaf, connecting again/);
      expect(await worker.probe("/livez")).toMatchObject({ status: 200, ok: true });
      await plugs[name]?.mend();
      await untilReady(worker);
    },
  );

  test("name the broker on both sides: the intake at once, the relay when it has something to send", async () => {
    await plugs["broker"]?.pull();
    await red("intake", /^SQS does not answer/);
    const receipt = await flow().payments.pay(aRequest());
    await red("broker", /^SNS takes no events \(.*\), last tried \d+ s ago$/);
    expect(await worker.probe("/livez")).toMatchObject({ status: 200, ok: true });
    await plugs["broker"]?.mend();
    await untilReady(worker);
    const end = await flow().payments.waitForEnd(receipt, { timeoutMs: 30_000 });
    expect(end.status).toBe("settled");
  });

  test("say that the relay makes no progress, and are green again when it does", async () => {
    const relay = flow().client.workflow.getHandle(
      workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
    );
    await relay.executeUpdate("pause", { args: [{ reason: "to see who notices" }] });
    const receipt = await flow().payments.pay(aRequest());
    await red("progress", /^events wait for \d+ s and nobody takes them: remit relay status$/);
    await relay.executeUpdate("resume", { args: [] });
    await untilReady(worker);
    expect(await flow().payments.waitForEnd(receipt, { timeoutMs: 30_000 })).toMatchObject({
      status: "settled",
    });
  });

  test("turn red before the drain starts and stay alive until the end", async () => {
    plugs["broker"]?.mute();
    worker.child.kill("SIGTERM");
    await red("phase", /^draining$/);
    expect(await worker.probe("/livez")).toMatchObject({ status: 200, ok: true });
    expect(worker.log()).not.toContain("did not drain");
    await plugs["broker"]?.mend();
    expect(await worker.ended).toBe(0);
  });
});

describe("one process a role", () => {
  test("settles a payment, and each is ready by the checks of its own role", async () => {
    const one = async (role: string): Promise<WorkerProcess> =>
      await processes.start(["--role", role], flow().env);
    const [payments, relay, ledger] = [
      await one("payments"),
      await one("relay"),
      await one("ledger"),
    ];
    for (const each of [payments, relay, ledger]) await untilReady(each);
    const receipt = await flow().payments.pay(aRequest());
    const end = await flow().payments.waitForEnd(receipt, { timeoutMs: 20_000 });
    const names = async (each: WorkerProcess): Promise<string[]> =>
      Object.keys((await each.probe("/readyz")).reasons).toSorted();
    expect(end.status).toBe("settled");
    const all = ["database", "phase", "temporal", "workers"];
    expect(await names(payments)).toEqual(all);
    expect(await names(relay)).toEqual([...all, "broker", "listen", "progress"].toSorted());
    expect(await names(ledger)).toEqual([...all, "intake"].toSorted());
  });
});
