import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { plugInto } from "../test/support/plug.ts";
import type { Plug } from "../test/support/plug.ts";
import { inheritedEnvironment } from "../src/local/environment.ts";
import type { Role } from "../src/worker/roles.ts";
import { ROLES } from "../src/worker/roles.ts";
import { startBrokerProxy } from "./broker-proxy.ts";
import type { Failpoints } from "./failpoints.ts";
import { startPostgresProxy } from "./postgres-proxy.ts";
import { REPOSITORY_DIR } from "./stack.ts";
import type { ChaosStack, ServiceName } from "./stack.ts";
import { startTemporalProxy } from "./temporal-proxy.ts";
import type { Proxy, ProxyContext, Traffic } from "./traffic.ts";

/** A worker process of one role, with a cable and a proxy of its own to each service. */
export interface ChaosWorker {
  readonly name: string;
  readonly role: Role;
  readonly pid: number;
  readonly plugs: Readonly<Record<ServiceName, Plug>>;
  readonly ready: Promise<void>;
  readonly ended: Promise<void>;
}

export interface FleetOptions {
  readonly stack: ChaosStack;
  readonly traffic: Traffic;
  readonly failpoints: Failpoints;
  /** Worker processes a role. */
  readonly replicas: number;
  readonly env: Readonly<Record<string, string>>;
}

/** All worker processes; one that ends is replaced at once, with new proxies. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #workers = new Map<string, ChaosWorker>();
  /** Whatever isn't closed yet, of the dead ones, too. */
  readonly #closing = new Set<Promise<void>>();
  readonly #envOfReplacement = new Map<string, Readonly<Record<string, string>>>();
  #started = 0;
  #isStopping = false;
  /** Of each replacement: from the end of the old process until the new one polls. */
  readonly replacementSeconds: number[] = [];

  constructor(options: FleetOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { replicas } = this.#options;
    const places = ROLES.flatMap((role) => Array.from({ length: replicas }, () => role));
    await Promise.all(places.map(async (role) => await (await this.#spawn(role)).ready));
  }

  workers(role?: Role): ChaosWorker[] {
    return [...this.#workers.values()].filter(
      (worker) => role === undefined || worker.role === role,
    );
  }

  /** SIGKILL; resolves when nothing of it runs any more. */
  async kill(name: string): Promise<void> {
    const worker = this.#workers.get(name);
    if (worker === undefined) return;
    this.#options.failpoints.bury(name);
    process.kill(worker.pid, "SIGKILL");
    await worker.ended;
  }

  /** SIGTERM, as a deployment ends it; the replacement comes when it has drained. */
  async drain(name: string): Promise<void> {
    const worker = this.#workers.get(name);
    if (worker === undefined) return;
    process.kill(worker.pid, "SIGTERM");
    await worker.ended;
  }

  /** Kills one; the process in its place gets these variables, too. */
  async replace(name: string, env: Readonly<Record<string, string>>): Promise<void> {
    this.#envOfReplacement.set(name, env);
    await this.kill(name);
    await this.untilWhole();
  }

  /** Every place has a process that polls. */
  async untilWhole(): Promise<void> {
    await Promise.all(
      this.workers().map(async ({ ready, ended }) => await Promise.race([ready, ended])),
    );
    if (this.#workers.size < ROLES.length * this.#options.replicas) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      await this.untilWhole();
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.workers().map(async ({ name }) => await this.kill(name)));
    await Promise.all(this.#closing);
  }

  async #spawn(role: Role, env: Readonly<Record<string, string>> = {}): Promise<ChaosWorker> {
    const { stack, traffic, failpoints } = this.#options;
    this.#started += 1;
    const name = `${role}-${this.#started}`;
    const context: ProxyContext = {
      workerName: name,
      role,
      traffic,
      reach: async (when, step) => await failpoints.reach(name, when, step),
    };
    const { proxies, plugs } = await startProxies(stack, context);
    const child = this.#launch({ name, role, plugs, env });
    const since = Date.now();
    const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
    const worker: ChaosWorker = {
      name,
      role,
      pid: child.pid ?? 0,
      plugs,
      ready: untilReady(child, ended),
      ended,
    };
    this.#workers.set(name, worker);
    worker.ready.then(
      () => this.replacementSeconds.push((Date.now() - since) / 1_000),
      () => undefined,
    );
    const replaced = ended.then(async () => {
      this.#workers.delete(name);
      stack.guard.remove(worker.pid);
      await Promise.all(
        [...Object.values(plugs), ...proxies].map(async ({ close }) => await close()),
      );
      if (!this.#isStopping) await this.#spawn(role, this.#envOfReplacement.get(name));
    });
    this.#closing.add(replaced);
    void replaced.finally(() => this.#closing.delete(replaced));
    return worker;
  }

  #launch({
    name,
    role,
    plugs,
    env,
  }: {
    name: string;
    role: Role;
    plugs: ChaosWorker["plugs"];
    env: Readonly<Record<string, string>>;
  }): ChildProcess {
    const { stack } = this.#options;
    const main = join(REPOSITORY_DIR, "src", "cli", "main.ts");
    const child = spawn(process.execPath, [main, "worker", "--role", role], {
      cwd: stack.directory,
      detached: true,
      env: {
        ...inheritedEnvironment(),
        HOME: stack.directory,
        ...environmentOf(stack, plugs),
        ...this.#options.env,
        ...env,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    stack.guard.add({ name, pid: child.pid ?? 0, signal: "SIGKILL" });
    const log = createWriteStream(join(stack.directory, "logs", `${role}.log`), { flags: "a" });
    child.stdout?.pipe(log, { end: false });
    child.stderr?.pipe(log, { end: false });
    child.once("close", () => log.end());
    return child;
  }
}

async function startProxies(
  stack: ChaosStack,
  context: ProxyContext,
): Promise<{ proxies: Proxy[]; plugs: ChaosWorker["plugs"] }> {
  const start = {
    postgres: startPostgresProxy,
    temporal: startTemporalProxy,
    broker: startBrokerProxy,
  };
  const at = async (name: ServiceName): Promise<{ proxy: Proxy; plug: Plug }> => {
    const proxy = await start[name]({ host: "127.0.0.1", port: stack.ports[name] }, context);
    return { proxy, plug: await plugInto({ host: "127.0.0.1", port: proxy.port }) };
  };
  const [postgres, temporal, broker] = [
    await at("postgres"),
    await at("temporal"),
    await at("broker"),
  ];
  return {
    proxies: [postgres.proxy, temporal.proxy, broker.proxy],
    plugs: { postgres: postgres.plug, temporal: temporal.plug, broker: broker.plug },
  };
}

function environmentOf(stack: ChaosStack, plugs: ChaosWorker["plugs"]): Record<string, string> {
  const databaseUrl = new URL(stack.databaseUrl);
  databaseUrl.port = String(plugs.postgres.port);
  return {
    DATABASE_URL: databaseUrl.href,
    TEMPORAL_ADDRESS: `127.0.0.1:${plugs.temporal.port}`,
    TEMPORAL_NAMESPACE: stack.temporalNamespace,
    TEMPORAL_CONFIG_FILE: join(stack.directory, "no-profiles.toml"),
    AWS_ENDPOINT_URL: `http://127.0.0.1:${plugs.broker.port}`,
    AWS_REGION: "us-east-1",
    AWS_ACCESS_KEY_ID: "local",
    AWS_SECRET_ACCESS_KEY: "local",
    REMIT_TOPIC_ARN: stack.topicArn,
    REMIT_LEDGER_QUEUE_URL: stack.ledgerQueueUrl,
    REMIT_LEDGER_DLQ_URL: stack.ledgerDlqUrl,
  };
}

async function untilReady(child: ChildProcess, ended: Promise<void>): Promise<void> {
  const said = new Promise<void>((resolve) => {
    let text = "";
    child.stderr?.on("data", (chunk) => {
      text = (text + String(chunk)).slice(-2_000);
      if (text.includes("worker is ready")) resolve();
    });
  });
  await Promise.race([said, ended]);
}
