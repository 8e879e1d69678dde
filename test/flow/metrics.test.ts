import { readFileSync } from "node:fs";
import { metricsOf, valueOf } from "../support/exposition.ts";
import { scheduleIds } from "../../src/domain/ids.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { plugInto } from "../support/plug.ts";
import type { Plug } from "../support/plug.ts";
import { testServices } from "../support/services.ts";
import { untilReady, workerProcesses } from "../support/worker-process.ts";
import type { WorkerProcess } from "../support/worker-process.ts";
import { createSnsClient } from "../../src/messaging/aws-clients.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import { getMessage } from "../../src/database/outbox-queries.ts";
import { createdMessage } from "../support/database.ts";

jest.setTimeout(120_000);
const flow = useFlow();
const processes = workerProcesses();
const plugs: Record<"database" | "temporal" | "broker", Plug | null> = {
  database: null,
  temporal: null,
  broker: null,
};
let worker: WorkerProcess;

beforeAll(async () => {
  const database = new URL(flow().database.url);
  const broker = new URL(flow().aws.endpointUrl ?? "");
  const [host = "", port] = testServices().REMIT_TEST_TEMPORAL_ADDRESS.split(":");
  plugs.database = await plugInto({ host: database.hostname, port: Number(database.port) });
  plugs.temporal = await plugInto({ host, port: Number(port) });
  plugs.broker = await plugInto({ host: broker.hostname, port: Number(broker.port) });
  database.port = String(plugs.database.port);
  worker = await processes.start([], {
    ...flow().env,
    DATABASE_URL: database.href,
    TEMPORAL_ADDRESS: `127.0.0.1:${plugs.temporal.port}`,
    AWS_ENDPOINT_URL: `http://127.0.0.1:${plugs.broker.port}`,
  });
  await untilReady(worker);
  await openFundedAccounts(flow());
  // Before the first look there is no time of one.
  await eventually(
    async () => await flow().client.schedule.getHandle(scheduleIds.reconciliationRecent).trigger(),
  );
});
afterAll(async () => {
  await processes.end();
  await Promise.all(Object.values(plugs).map(async (plug) => await plug?.close()));
});

interface Documented {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
}

/** Rows of the tables of docs/operations.md: | `name` | type | `label`, `label` | … */
function documented(): Documented[] {
  const page = readFileSync("docs/operations.md", "utf8");
  return [...page.matchAll(/^\| `(remit_\w+)` +\| (\w+) +\| ([^|]*)\|/gm)].map(
    ([, name = "", type = "", labels = ""]) => ({
      name,
      type,
      labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = ""]) => label),
    }),
  );
}

describe("docs/operations.md", () => {
  test("names each metric of a running worker's own, with its type and labels, and no other", async () => {
    await eventually(async () => {
      const page = metricsOf(await worker.scrape());
      const own = [...page]
        .filter(([name]) => name.startsWith("remit_"))
        .map(([name, { type, labels }]) => ({ name, type, labels: labels.toSorted() }));
      const sorted = documented().map((row) => ({ ...row, labels: row.labels.toSorted() }));
      const byName = (left: Documented, right: Documented): number =>
        left.name < right.name ? -1 : 1;
      expect(sorted.toSorted(byName)).toEqual(own.toSorted(byName));
    });
  });

  test("names metrics of Temporal's SDK that there are; a task that can't run is among them", async () => {
    const { client } = flow();
    const handle = await client.workflow.start("noSuchWorkflow", {
      workflowId: "metrics-no-such-workflow",
      taskQueue: "payments",
    });
    const page = readFileSync("docs/operations.md", "utf8");
    const names = new Set(page.match(/\btemporal_[a-z_]+?(?=_bucket|\b)/g));
    expect(names.size).toBeGreaterThan(3);
    await eventually(
      async () => {
        const found = metricsOf(await worker.scrape());
        expect([...names].filter((name) => !found.has(name))).toEqual([]);
      },
      { timeoutMs: 30_000 },
    );
    await handle.terminate("seen");
  });
});

describe("a scrape", () => {
  test("has help and a conventional name for each metric: units, _total, no id, account or merchant", async () => {
    const { payments } = flow();
    const request = aRequest();
    const receipt = await payments.pay(request);
    await payments.waitForEnd(receipt, { timeoutMs: 20_000 });
    const page = await worker.scrape();
    const own = [...metricsOf(page)].filter(([name]) => name.startsWith("remit_"));
    expect(own.filter(([, { help }]) => help === "")).toEqual([]);
    const misnamed = own.filter(
      ([name, { type }]) => (type === "counter") !== name.endsWith("_total"),
    );
    expect(misnamed.map(([name]) => name)).toEqual([]);
    expect(own.filter(([name]) => /_(ms|millis|minutes|kb|mb)\b/.test(name))).toEqual([]);
    for (const secret of [request.key, receipt.paymentId, "alice", "shop", "world:EUR"]) {
      expect(page).not.toContain(secret);
    }
  });

  test("counts a payment on its way, its repeat, and its second delivery", async () => {
    const { payments, database, aws, topicArn } = flow();
    const before = await worker.scrape();
    const grown = async (name: string, labels = ""): Promise<number> =>
      (valueOf(await worker.scrape(), name, labels) ?? Number.NaN) -
      (valueOf(before, name, labels) ?? Number.NaN);
    const request = aRequest();
    const receipt = await payments.pay(request);
    await payments.waitForEnd(receipt, { timeoutMs: 20_000 });
    await payments.pay(request);
    const sns = createSnsClient(aws, { requestTimeoutMs: 5_000 });
    const { messageId } = await createdMessage(database.admin, receipt.paymentId);
    const message = await getMessage(database.app, messageId);
    const publisher = createSnsPublisher(sns, topicArn);
    await publisher.publish(message === null ? [] : [message], Date.now() + 5_000);
    sns.destroy();
    await eventually(async () => {
      expect(await grown("remit_requests_total", 'operation="pay",outcome="recorded"')).toBe(1);
      expect(await grown("remit_events_published_total")).toBe(2);
      expect(await grown("remit_publish_latency_seconds")).toBe(2);
      expect(await grown("remit_deliveries_total", 'result="started"')).toBe(1);
      expect(await grown("remit_bookings_total", 'outcome="booked"')).toBe(1);
      expect(await grown("remit_booking_latency_seconds")).toBe(1);
      expect(await grown("remit_deliveries_total", 'result="repeated"')).toBe(1);
      expect(await grown("remit_duplicates_absorbed_total", 'by="workflow"')).toBe(1);
    });
    expect(valueOf(await worker.scrape(), "remit_relay_ranges_active")).toBe(1);
  });

  test.each([
    ["database", "pull", "database", "remit_outbox_oldest_pending_age_seconds"],
    ["database", "mute", "database", "remit_outbox_oldest_pending_age_seconds"],
    ["broker", "pull", "queues", "remit_queue_messages"],
  ] as const)(
    "is answered in time after a %s's %s: its part (%s) is missing and said to be, all else is there",
    async (plug, outage, part, gauge) => {
      await plugs[plug]?.[outage]();
      await eventually(
        async () => {
          const since = performance.now();
          const page = await worker.scrape();
          expect(performance.now() - since).toBeLessThan(4_000);
          expect(valueOf(page, "remit_scrape_ok", `part="${part}"`)).toBe(0);
          expect(metricsOf(page).get(gauge)?.values.size).toBe(0);
          expect(valueOf(page, "remit_scrape_ok", 'part="temporal"')).toBe(1);
          expect(valueOf(page, "remit_listen_alive")).not.toBeNull();
        },
        { timeoutMs: 60_000 },
      );
      await plugs[plug]?.mend();
      await eventually(
        async () => {
          const page = await worker.scrape();
          expect(valueOf(page, "remit_scrape_ok", `part="${part}"`)).toBe(1);
          expect(metricsOf(page).get(gauge)?.values.size).toBeGreaterThan(0);
        },
        { timeoutMs: 90_000 },
      );
    },
  );

  test("is answered while Temporal is away, and its check says so", async () => {
    await plugs.temporal?.pull();
    await eventually(
      async () =>
        expect(valueOf(await worker.scrape(), "remit_check_ok", 'check="temporal"')).toBe(0),
      { timeoutMs: 30_000 },
    );
    await plugs.temporal?.mend();
    await eventually(
      async () =>
        expect(valueOf(await worker.scrape(), "remit_check_ok", 'check="temporal"')).toBe(1),
      { timeoutMs: 30_000 },
    );
  });
});

describe("one process a role", () => {
  test("shows what its role can see, and asks no queue that it may not ask", async () => {
    const one = await processes.start(["--role", "payments"], flow().env);
    await untilReady(one);
    const page = metricsOf(await one.scrape());
    expect(page.get("remit_outbox_events")?.values.size).toBe(2);
    expect(page.has("remit_queue_messages")).toBe(false);
    expect(page.get("remit_listen_alive")?.values.size).toBe(0);
  });
});
