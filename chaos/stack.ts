import { chownSync, mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SetQueueAttributesCommand, SQSClient } from "@aws-sdk/client-sqs";
import { migrate } from "../src/database/migrate.ts";
import { createLoginRole } from "../src/database/roles.ts";
import { startBroker } from "../src/local/broker.ts";
import type { Broker } from "../src/local/broker.ts";
import { startGuard } from "../src/local/guard.ts";
import type { StartedGuard } from "../src/local/guard.ts";
import { freePort } from "../src/local/ports.ts";
import { createDatabase, startPostgres, withClient } from "../src/local/postgres.ts";
import type { Postgres } from "../src/local/postgres.ts";
import type { Service } from "../src/local/processes.ts";
import { supervise } from "../src/local/supervise.ts";
import type { Supervised } from "../src/local/supervise.ts";
import { defaultCacheDir, ensureTemporalBinary } from "../src/local/temporal-binary.ts";
import { startTemporal } from "../src/local/temporal.ts";
import type { TemporalServer } from "../src/local/temporal.ts";
import { ensureTopology } from "../src/messaging/topology.ts";
import type { Topology } from "../src/messaging/topology.ts";
import type { Disks } from "./disks.ts";

export const SERVICES = ["postgres", "temporal", "broker"] as const;
export type ServiceName = (typeof SERVICES)[number];

/** PostgreSQL, Temporal and the broker, durable and each started again when it dies, in a temporary folder of their own. */
export interface ChaosStack extends Topology {
  readonly directory: string;
  /** What PostgreSQL lies on, where it isn't the temporary folder. */
  readonly disks: Disks | null;
  readonly guard: StartedGuard;
  readonly adminDatabaseUrl: string;
  readonly databaseUrl: string;
  readonly temporalAddress: string;
  readonly temporalNamespace: string;
  readonly awsEndpointUrl: string;
  readonly ports: Readonly<Record<ServiceName, number>>;
  readonly services: Readonly<Record<ServiceName, Supervised<Service>>>;
  readonly close: () => Promise<void>;
}

export const REPOSITORY_DIR = join(import.meta.dirname, "..");
const CREDENTIALS = { accessKeyId: "local", secretAccessKey: "local" };

export async function startChaosStack({
  visibilitySeconds,
  disks,
  log,
}: {
  /** Null: what `remit aws setup` gives the queue. */
  visibilitySeconds: number | null;
  disks: Disks | null;
  log: (line: string) => void;
}): Promise<ChaosStack> {
  const directory = mkdtempSync(join(tmpdir(), "remit-chaos-"));
  mkdirSync(join(directory, "logs"));
  // A run that is killed takes its stack with it.
  const guard = startGuard({
    recordsDir: join(directory, "processes"),
    removeDirAtDeath: directory,
  });
  const started: Supervised<Service>[] = [];
  const close = async (): Promise<void> => {
    for (const service of started.toReversed()) await service.stop();
    await guard.close();
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    const ports = {
      postgres: await freePort(),
      temporal: await freePort(),
      broker: await freePort(),
    };
    const uiPort = await freePort();
    const binary = await ensureTemporalBinary({
      cacheDir: defaultCacheDir(process.env, REPOSITORY_DIR),
      log,
    });
    const run = async <Kind extends Service>(
      name: ServiceName,
      start: (options: {
        dir: string;
        port: number;
        logFile: string;
        guard: StartedGuard;
      }) => Promise<Kind>,
    ): Promise<Supervised<Kind>> => {
      const options = {
        dir: join(directory, name),
        port: ports[name],
        logFile: join(directory, "logs", `${name}.log`),
        guard,
      };
      const service = await supervise({
        name,
        start: async () => await start(options),
        log,
        onRestart: () => undefined,
      });
      started.push(service);
      return service;
    };
    const [postgres, temporal, broker] = await Promise.all([
      run<Postgres>(
        "postgres",
        async (options) =>
          await startPostgres({ ...options, ...onDisks(disks), password: PASSWORD }),
      ),
      run<TemporalServer>(
        "temporal",
        async (options) => await startTemporal({ ...options, binary, uiPort }),
      ),
      run<Broker>("broker", startBroker),
    ]);
    const database = await prepareDatabase(postgres.current(), disks);
    const { endpointUrl, region } = broker.current();
    const topology = await ensureTopology({ endpointUrl, region, credentials: CREDENTIALS });
    if (visibilitySeconds !== null)
      await setVisibility(endpointUrl, { ...topology, visibilitySeconds });
    return {
      ...topology,
      ...database,
      directory,
      disks,
      guard,
      ports,
      temporalAddress: temporal.current().address,
      temporalNamespace: temporal.current().namespace,
      awsEndpointUrl: endpointUrl,
      services: { postgres, temporal, broker },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Only this machine reaches it, and only for as long as the run lasts. */
const PASSWORD = "chaos";

/** The log stays small: its old segments would be the room that a full disk must not have. */
function onDisks(disks: Disks | null): { dir?: string; settings?: Record<string, string> } {
  if (disks === null) return {};
  const settings = { min_wal_size: "32MB", max_wal_size: "64MB" };
  return { dir: clusterDirOf(disks), settings };
}

function clusterDirOf({ cluster }: Disks): string {
  return join(cluster.path, "postgres");
}

async function prepareDatabase(
  postgres: Postgres,
  disks: Disks | null,
): Promise<Pick<ChaosStack, "adminDatabaseUrl" | "databaseUrl">> {
  const adminDatabaseUrl = await createDatabase(postgres.adminDatabaseUrl, "remit");
  if (disks !== null) await moveTables(postgres, disks);
  await migrate({ adminDatabaseUrl });
  await createLoginRole({ adminDatabaseUrl, role: "remit", password: PASSWORD });
  const databaseUrl = new URL(adminDatabaseUrl);
  databaseUrl.username = "remit";
  return { adminDatabaseUrl, databaseUrl: databaseUrl.href };
}

async function moveTables(postgres: Postgres, disks: Disks): Promise<void> {
  const { uid, gid } = statSync(clusterDirOf(disks));
  chownSync(disks.tables.path, uid, gid);
  await withClient(postgres.adminDatabaseUrl, async (client) => {
    await client.query(`CREATE TABLESPACE apart LOCATION '${disks.tables.path}'`);
    await client.query("ALTER DATABASE remit SET TABLESPACE apart");
  });
}

async function setVisibility(
  endpoint: string,
  { ledgerQueueUrl, visibilitySeconds }: { ledgerQueueUrl: string; visibilitySeconds: number },
): Promise<void> {
  const sqs = new SQSClient({
    endpoint,
    region: "us-east-1",
    credentials: CREDENTIALS,
    useQueueUrlAsEndpoint: false,
  });
  const Attributes = { VisibilityTimeout: String(visibilitySeconds) };
  await sqs.send(new SetQueueAttributesCommand({ QueueUrl: ledgerQueueUrl, Attributes }));
  sqs.destroy();
}

/** Kills a service as the kernel would; its supervisor starts it again. */
export function killService(stack: ChaosStack, name: ServiceName): void {
  process.kill(stack.services[name].current().pid, "SIGKILL");
}
