import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Flow } from "../support/flow.ts";
import { plugInto } from "../support/plug.ts";
import type { Plug } from "../support/plug.ts";
import { startStrictBroker } from "../support/strict-broker.ts";
import { untilReady, workerProcesses } from "../support/worker-process.ts";
import type { WorkerProcess } from "../support/worker-process.ts";
import { startPrometheus } from "./prometheus-server.ts";
import type { PrometheusServer } from "./prometheus-server.ts";
import { createShell } from "./shell.ts";
import type { Shell } from "./runbook.ts";

export type WorkerName = "front" | "ledger";

const ROLES_OF: Readonly<Record<WorkerName, string>> = {
  front: "payments,relay",
  ledger: "ledger",
};

/** A whole Remit on two workers, with a way to PostgreSQL for each and one to the broker that can be cut, and a Prometheus. */
export interface Scene {
  readonly prometheus: PrometheusServer;
  readonly shell: Shell;
  readonly broker: Plug;
  readonly databaseOf: Readonly<Record<WorkerName, Plug>>;
  readonly worker: (name: WorkerName) => WorkerProcess;
  /** Starts it anew where it has ended, and waits until it is ready. */
  readonly startWorker: (name: WorkerName) => Promise<void>;
  /** `host:port` of its health port. */
  readonly addressOf: (name: WorkerName) => string;
  readonly end: () => Promise<void>;
}

export async function createScene(flow: Flow): Promise<Scene> {
  const dir = mkdtempSync(join(tmpdir(), "remit-alerts-"));
  const processes = workerProcesses();
  const strict = await startStrictBroker(flow.aws.endpointUrl ?? "");
  const broker = await plugInto(endOf(strict.url));
  const databaseOf = {
    front: await plugInto(endOf(flow.database.url)),
    ledger: await plugInto(endOf(flow.database.url)),
  };
  const prometheus = await startPrometheus(join(dir, "prometheus"));
  const env = {
    ...flow.env,
    AWS_ENDPOINT_URL: `http://127.0.0.1:${broker.port}`,
    REMIT_ADMIN_DATABASE_URL: flow.database.adminUrl,
  };
  const running = new Map<WorkerName, WorkerProcess>();
  const worker = (name: WorkerName): WorkerProcess => {
    const found = running.get(name);
    if (found === undefined) throw new Error(`no worker ${name} was started`);
    return found;
  };
  const scrapeAll = (): void =>
    prometheus.scrape([...running.values()].map(({ url }) => new URL(url()).host));
  return {
    prometheus,
    shell: createShell(join(dir, "operator"), env),
    broker,
    databaseOf,
    worker,
    addressOf: (name) => new URL(worker(name).url()).host,
    startWorker: async (name) => {
      const database = new URL(flow.database.url);
      database.port = String(databaseOf[name].port);
      running.set(
        name,
        await processes.start(["--role", ROLES_OF[name]], { ...env, DATABASE_URL: database.href }),
      );
      await untilReady(worker(name));
      scrapeAll();
    },
    end: async () => {
      // In order, so that no long poll is left half way through the broker's stand-in.
      for (const { child } of running.values()) child.kill("SIGTERM");
      await Promise.all([...running.values()].map(async ({ ended }) => await ended));
      await processes.end();
      await prometheus.stop();
      await Promise.all(
        [broker, databaseOf.front, databaseOf.ledger].map(async (one) => await one.close()),
      );
      await strict.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

function endOf(url: string): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}
