import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Client, Connection } from "@temporalio/client";
import { createPaymentClient } from "../../src/client/payment-client.ts";
import type { PaymentClient } from "../../src/client/payment-client.ts";
import type { PaymentRequest } from "../../src/client/parameters.ts";
import { createAccount } from "../../src/database/account-queries.ts";
import { inheritedEnvironment } from "../../src/local/environment.ts";
import { SEARCH_ATTRIBUTES } from "../../src/domain/search-attributes.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";
import type { Topology } from "../../src/messaging/topology.ts";
import type { AwsTarget } from "../../src/messaging/aws-clients.ts";
import { cloneDatabase } from "./database.ts";
import type { TestDatabase } from "./database.ts";
import { eventually } from "./eventually.ts";
import { testServices } from "./services.ts";

/** One whole Remit of a test file's own: database, namespace, topic and queues, and worker processes to kill. */
export interface Flow extends Topology {
  readonly database: TestDatabase;
  readonly client: Client;
  readonly payments: PaymentClient;
  readonly aws: AwsTarget;
  /** What a process needs to work with it. */
  readonly env: Readonly<Record<string, string>>;
  /** Starts a worker process for all roles and waits until it polls. */
  startWorker(env?: Record<string, string>): Promise<ChildProcess>;
  /** Ends a worker as the kernel would: nothing of it runs any more when this resolves. */
  kill(worker: ChildProcess, signal?: NodeJS.Signals): Promise<void>;
}

/** Opens alice and shop, and pays alice 1,000.00 EUR through the whole flow; a worker must run. */
export async function openFundedAccounts({ database, payments }: Flow): Promise<void> {
  const account = { currency: "EUR", overdraftMinor: 0n } as const;
  await createAccount(database.app, { ...account, accountId: "alice", kind: "customer" });
  await createAccount(database.app, { ...account, accountId: "shop", kind: "merchant" });
  const funding = await payments.pay(
    aRequest({ from: "world:EUR", to: "alice", amount: "1000.00" }),
  );
  await payments.waitForEnd(funding, { timeoutMs: 20_000 });
}

/** A request for 12.50 EUR from alice to shop with a key of its own, unless said. */
export function aRequest(overrides: Partial<PaymentRequest> = {}): PaymentRequest {
  return {
    key: `k-${randomUUID()}`,
    from: "alice",
    to: "shop",
    amount: "12.50",
    currency: "EUR",
    ...overrides,
  };
}

const KEYWORD = 2;

/** Sets a Flow up before the file's tests; afterwards ends what still runs and fails if that can't be. */
export function useFlow(): () => Flow {
  let current: (Flow & { end(): Promise<void> }) | undefined;
  beforeAll(async () => {
    current = await createFlow();
  }, 60_000);
  afterAll(async () => {
    await current?.end();
  }, 60_000);
  return () => {
    if (current === undefined) throw new Error("useFlow: only inside of a test");
    return current;
  };
}

async function createFlow(): Promise<Flow & { end(): Promise<void> }> {
  const services = testServices();
  const name = `t-${randomBytes(5).toString("hex")}`;
  const aws = {
    endpointUrl: services.REMIT_TEST_AWS_ENDPOINT_URL,
    region: "us-east-1",
    credentials: { accessKeyId: "local", secretAccessKey: "local" },
  };
  const connection = await Connection.connect({ address: services.REMIT_TEST_TEMPORAL_ADDRESS });
  const [database, topology] = await Promise.all([
    cloneDatabase(10),
    ensureTopology(aws, { prefix: name }),
    createNamespace(connection, name),
  ]);
  const client = new Client({ connection, namespace: name });
  const dir = mkdtempSync(join(tmpdir(), "remit-flow-"));
  const workers = new Set<ChildProcess>();
  const kill = async (worker: ChildProcess, signal: NodeJS.Signals = "SIGKILL"): Promise<void> => {
    workers.delete(worker);
    if (worker.exitCode !== null || worker.signalCode !== null) return;
    const exited = once(worker, "exit");
    worker.kill(signal);
    await exited;
  };
  const env = {
    DATABASE_URL: database.url,
    TEMPORAL_ADDRESS: services.REMIT_TEST_TEMPORAL_ADDRESS,
    TEMPORAL_NAMESPACE: name,
    AWS_ENDPOINT_URL: aws.endpointUrl,
    AWS_REGION: aws.region,
    AWS_ACCESS_KEY_ID: "local",
    AWS_SECRET_ACCESS_KEY: "local",
    REMIT_TOPIC_ARN: topology.topicArn,
    REMIT_LEDGER_QUEUE_URL: topology.ledgerQueueUrl,
    REMIT_LEDGER_DLQ_URL: topology.ledgerDlqUrl,
  };
  return {
    ...topology,
    database,
    client,
    env,
    payments: createPaymentClient({ client, uiUrl: null }),
    aws,
    kill,
    startWorker: async (overrides = {}) => {
      const worker = await startWorker(dir, { ...env, ...overrides });
      workers.add(worker);
      return worker;
    },
    end: async () => {
      await Promise.all([...workers].map(async (worker) => await kill(worker)));
      await connection.close();
      await database.drop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

async function createNamespace(connection: Connection, namespace: string): Promise<void> {
  await connection.workflowService.registerNamespace({
    namespace,
    workflowExecutionRetentionPeriod: { seconds: 86_400 as unknown as Long },
  });
  const searchAttributes = Object.fromEntries(SEARCH_ATTRIBUTES.map((name) => [name, KEYWORD]));
  // The server learns of a namespace a moment after it was registered.
  await eventually(
    async () =>
      await connection.operatorService.addSearchAttributes({ namespace, searchAttributes }),
    { timeoutMs: 30_000 },
  );
}

async function startWorker(dir: string, env: Record<string, string>): Promise<ChildProcess> {
  const log = join(dir, "worker.log");
  const worker = spawn(process.execPath, [resolve("src/worker/main.ts")], {
    cwd: dir,
    env: { ...inheritedEnvironment(), HOME: dir, ...env },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  for (const stream of [worker.stdout, worker.stderr]) {
    stream?.on("data", (text: Buffer) => appendFileSync(log, text));
  }
  const ready = new Promise<void>((resolveReady, reject) => {
    worker.once("message", () => resolveReady());
    worker.once("exit", (code, signal) =>
      reject(
        new Error(`worker ended (${code ?? signal}):\n${readFileSync(log, "utf8").slice(-2_000)}`),
      ),
    );
  });
  await ready;
  return worker;
}

type Long = NonNullable<
  NonNullable<
    Parameters<
      Connection["workflowService"]["registerNamespace"]
    >[0]["workflowExecutionRetentionPeriod"]
  >["seconds"]
>;
