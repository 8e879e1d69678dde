import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "../support/eventually.ts";
import { useFlow } from "../support/flow.ts";
import { plugInto } from "../support/plug.ts";
import type { Plug } from "../support/plug.ts";
import { testServices } from "../support/services.ts";
import { workerProcesses } from "../support/worker-process.ts";
import type { WorkerProcess } from "../support/worker-process.ts";

jest.setTimeout(120_000);
const flow = useFlow();
const processes = workerProcesses();
let broker: Plug;

beforeEach(async () => {
  const { hostname, port } = new URL(flow().aws.endpointUrl ?? "");
  broker = await plugInto({ host: hostname, port: Number(port) });
});
afterEach(async () => {
  await broker.close();
});
afterAll(async () => {
  await processes.end();
});

/** A ready worker whose polls of the queue get no answer any more, so that a drain has to wait for them. */
async function workerThatCannotDrain(graceMs: number): Promise<WorkerProcess> {
  const worker = await processes.start([], {
    ...flow().env,
    AWS_ENDPOINT_URL: `http://127.0.0.1:${broker.port}`,
    REMIT_SHUTDOWN_GRACE_MS: String(graceMs),
  });
  await isReady(worker);
  broker.mute();
  return worker;
}

async function isReady(worker: WorkerProcess): Promise<void> {
  await eventually(async () => expect((await worker.probe("/readyz")).status).toBe(200), {
    timeoutMs: 60_000,
  });
}

describe("SIGTERM", () => {
  test("ends within the limit, with exit 1 and the name of what was still open", async () => {
    const worker = await workerThatCannotDrain(1_000);
    const since = performance.now();
    worker.child.kill("SIGTERM");
    expect(await worker.ended).toBe(1);
    expect(performance.now() - since).toBeLessThan(5_000);
    const last = worker.log().trimEnd().split("\n").at(-1) ?? "";
    expect(JSON.parse(last)).toMatchObject({
      msg: "worker did not drain within 1000 ms",
      open: expect.arrayContaining([
        "ledger intake",
        expect.stringContaining("worker of relay (RUNNING, activities: "),
        "Temporal connection",
        "database pool",
      ]) as string[],
    });
  });

  test("while it starts is an end in order, too", async () => {
    const worker = await processes.start([], flow().env);
    worker.child.kill("SIGTERM");
    expect(await worker.ended).toBe(0);
    expect(worker.log()).not.toContain("did not drain");
  });

  test("in an outage of Temporal ends within the limit", async () => {
    const [host = "", port] = testServices().REMIT_TEST_TEMPORAL_ADDRESS.split(":");
    const temporal = await plugInto({ host, port: Number(port) });
    const worker = await processes.start([], {
      ...flow().env,
      TEMPORAL_ADDRESS: `127.0.0.1:${temporal.port}`,
      REMIT_SHUTDOWN_GRACE_MS: "8000",
    });
    await isReady(worker);
    await temporal.pull();
    const since = performance.now();
    worker.child.kill("SIGTERM");
    const end = await worker.ended;
    expect(performance.now() - since).toBeLessThan(12_000);
    // What can't be reported to Temporal keeps a worker of the SDK: then the log names that worker.
    const isNamed = /"open":\[.*worker of \w+ \(DRAINING.*did not drain/.test(worker.log());
    expect({ end, isNamed }).toEqual(
      end === 0 ? { end, isNamed: false } : { end: 1, isNamed: true },
    );
    await temporal.close();
  });

  test.each(["SIGTERM", "SIGINT"] as const)(
    "a second time ends at once, also as %s",
    async (second) => {
      const worker = await workerThatCannotDrain(60_000);
      worker.child.kill("SIGTERM");
      await eventually(() => expect(worker.log()).toContain("worker drains"));
      await delay(300);
      worker.child.kill(second);
      expect(await worker.ended).toBe(second === "SIGTERM" ? 143 : 130);
    },
  );
});

test("a health port that is taken is a refusal that names the settings, before anything is connected", async () => {
  const worker = await processes.start([], flow().env);
  const port = new URL(/"url":"(http:[^"]+)"/.exec(worker.log())?.[1] ?? "").port;
  await expect(processes.start(["--health-port", port], flow().env)).rejects.toThrow(
    /REMIT_HEALTH_PORT/,
  );
});
