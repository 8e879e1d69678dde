import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SNSClient } from "@aws-sdk/client-sns";
import { PurgeQueueCommand } from "@aws-sdk/client-sqs";
import { Pool } from "pg";
import { createDatabase as createAppDatabase } from "../../src/database/database.ts";
import type { Database } from "../../src/database/database.ts";
import { migrate } from "../../src/database/migrate.ts";
import { createLoginRole } from "../../src/database/roles.ts";
import { startBroker } from "../../src/local/broker.ts";
import { startGuard } from "../../src/local/guard.ts";
import { createDatabase, startPostgres, withClient } from "../../src/local/postgres.ts";
import { createSnsClient, createSqsClient } from "../../src/messaging/aws-clients.ts";
import type { AwsTarget } from "../../src/messaging/aws-clients.ts";
import { ensureTopology } from "../../src/messaging/topology.ts";

/** What a worker has unless it is told otherwise. */
export const WORKER_POOL_MAX = 10;
export const LEASE_MS = 10_000;
export const SEND_TIMEOUT_MS = 3_000;
export const POLL_INTERVAL_MS = 2_000;

/** A PostgreSQL and an SNS/SQS emulator of this run's own, each in its own process. */
export interface Scene {
  readonly sns: SNSClient;
  readonly topicArn: string;
  readonly pids: { readonly postgres: number; readonly broker: number };
  /** A migrated, empty database; `poolMax` connections for the application. */
  readonly openDatabase: (options?: { poolMax?: number }) => Promise<BenchDatabase>;
  /** An empty database without Remit's schema. */
  readonly openBareDatabase: () => Promise<{ readonly url: string }>;
  /** Throws away what the queue has received, so that the emulator's memory is the same in each round. */
  readonly emptyQueue: () => Promise<void>;
  readonly close: () => Promise<void>;
}

export interface BenchDatabase {
  /** The application's pool, under its own login. */
  readonly app: Database;
  readonly url: string;
  /** The superuser's. */
  readonly admin: Pool;
  readonly close: () => Promise<void>;
}

const TEMPLATE = "bench_template";

/**
 * Durable, as in production: every claim and mark waits for the disk. Autovacuum looks every 10 s and not every minute,
 * since a run is minutes long; WAL has room, so that no checkpoint falls into one side of a comparison only.
 */
const POSTGRES_SETTINGS = {
  shared_buffers: "512MB",
  max_wal_size: "8GB",
  checkpoint_timeout: "30min",
  max_connections: "200",
  autovacuum_naptime: "10s",
};

export async function startScene(): Promise<Scene> {
  const directory = mkdtempSync(join(tmpdir(), "remit-bench-relay-"));
  const guard = startGuard({
    recordsDir: join(directory, "processes"),
    removeDirAtDeath: directory,
  });
  const closers: (() => void | Promise<unknown>)[] = [
    () => rmSync(directory, { recursive: true, force: true }),
    async () => await guard.close(),
  ];
  const close = async (): Promise<void> => {
    for (const part of closers.toReversed()) await part();
  };
  try {
    const postgres = await startPostgres({
      dir: join(directory, "postgres"),
      password: "bench",
      logFile: join(directory, "postgres.log"),
      settings: POSTGRES_SETTINGS,
      guard,
    });
    closers.push(async () => await postgres.stop());
    const { adminDatabaseUrl } = postgres;
    await migrate({ adminDatabaseUrl: await createDatabase(adminDatabaseUrl, TEMPLATE) });
    const broker = await startBroker({ logFile: join(directory, "broker.log"), guard });
    closers.push(async () => await broker.stop());
    const messaging = await openMessaging({
      endpointUrl: broker.endpointUrl,
      region: broker.region,
      credentials: { accessKeyId: "bench", secretAccessKey: "bench" },
    });
    closers.push(messaging.close);
    return {
      sns: messaging.sns,
      topicArn: messaging.topicArn,
      pids: { postgres: postgres.pid, broker: broker.pid },
      openDatabase: async (options) => await openDatabase(adminDatabaseUrl, options),
      openBareDatabase: async () => ({ url: await createDatabase(adminDatabaseUrl, newName()) }),
      emptyQueue: messaging.emptyQueue,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function openMessaging(
  target: AwsTarget,
): Promise<Pick<Scene, "sns" | "topicArn" | "emptyQueue"> & { close: () => void }> {
  const { topicArn, ledgerQueueUrl } = await ensureTopology(target);
  const sns = createSnsClient(target, { requestTimeoutMs: SEND_TIMEOUT_MS });
  const sqs = createSqsClient(target, { requestTimeoutMs: SEND_TIMEOUT_MS });
  return {
    sns,
    topicArn,
    emptyQueue: async () =>
      void (await sqs.send(new PurgeQueueCommand({ QueueUrl: ledgerQueueUrl }))),
    close: () => {
      sns.destroy();
      sqs.destroy();
    },
  };
}

async function openDatabase(
  adminDatabaseUrl: string,
  { poolMax = WORKER_POOL_MAX }: { poolMax?: number } = {},
): Promise<BenchDatabase> {
  const name = newName();
  const password = randomBytes(12).toString("hex");
  await withClient(adminDatabaseUrl, async (client) => {
    await client.query(`CREATE DATABASE ${name} TEMPLATE ${TEMPLATE}`);
  });
  const adminUrl = new URL(adminDatabaseUrl);
  adminUrl.pathname = `/${name}`;
  await createLoginRole({ adminDatabaseUrl: adminUrl.href, role: name, password });
  const url = new URL(adminUrl);
  url.username = name;
  url.password = password;
  const app = createAppDatabase({ url: url.href, poolMax, applicationName: "remit-bench" });
  const admin = new Pool({ connectionString: adminUrl.href, max: 4 });
  // The server ends connections of its own when the database is dropped.
  admin.on("error", () => undefined);
  return {
    app,
    url: url.href,
    admin,
    close: async () => {
      await app.close();
      await admin.end();
      await withClient(adminDatabaseUrl, async (client) => {
        await client.query(`DROP DATABASE ${name} WITH (FORCE)`);
      });
    },
  };
}

function newName(): string {
  return `bench_${randomBytes(6).toString("hex")}`;
}
