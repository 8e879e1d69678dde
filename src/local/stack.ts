import { rmSync } from "node:fs";
import { join } from "node:path";
import { migrate } from "../database/migrate.ts";
import { createLoginRole } from "../database/roles.ts";
import { ensureTopology } from "../messaging/topology.ts";
import { startBroker } from "./broker.ts";
import { secretsOf, writeWhole } from "./data-dir.ts";
import { endLeftovers, startGuard } from "./guard.ts";
import { choosePorts } from "./ports.ts";
import { createDatabase, startPostgres } from "./postgres.ts";
import { supervise } from "./supervise.ts";
import { defaultCacheDir, ensureTemporalBinary } from "./temporal-binary.ts";
import { startTemporal } from "./temporal.ts";
import { startWorker } from "./worker.ts";
import type { StackFile } from "../config/stack-file.ts";
import type { Broker } from "./broker.ts";
import type { DataDir } from "./data-dir.ts";
import type { StartedGuard } from "./guard.ts";
import type { Ports } from "./ports.ts";
import type { Postgres } from "./postgres.ts";
import type { Log, Service } from "./processes.ts";
import type { Supervised } from "./supervise.ts";
import type { TemporalServer } from "./temporal.ts";
import type { WorkerTargets } from "./worker.ts";

/** The whole system on this machine. */
export interface Stack {
  /** What `stack.json` says now. */
  readonly file: () => StackFile;
  /** Worker, broker, Temporal, PostgreSQL: each one still has what it needs while it ends. */
  readonly stop: () => Promise<void>;
}

export interface StackOptions {
  /** Opened and locked by the caller. */
  readonly dataDir: DataDir;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  /** Called when a part stands: `postgres 18.4`, and how long it took. */
  readonly onStep: (name: string, tookMs: number) => void;
  /** Aborting it while the stack starts ends what was started. */
  readonly signal: AbortSignal;
}

const REPOSITORY_DIR = join(import.meta.dirname, "..", "..");

/** Starts everything in a data folder, ends what an earlier run left there, and keeps each part running. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const { dataDir, log } = options;
  const left = await endLeftovers(dataDir.processes);
  if (left.length > 0) log(`ended what an earlier run left behind: ${left.join(", ")}`);
  rmSync(dataDir.stackFile, { force: true });

  const guard = startGuard({ recordsDir: dataDir.processes });
  const parts = createParts(options);
  try {
    const targets = await startServices(options, { parts, guard });
    await parts.run(
      "worker",
      async () => await startWorker(workerOptions(options, targets, guard)),
    );
    return runningStack({ options, parts, guard, targets });
  } catch (error) {
    await stopAll({ dataDir, parts, guard });
    throw error;
  }
}

type Targets = WorkerTargets & Pick<StackFile, "adminDatabaseUrl">;

interface Parts {
  readonly started: () => readonly Supervised<Service>[];
  readonly run: <Kind extends Service>(
    name: string,
    start: () => Promise<Kind>,
    describe?: (service: Kind) => string,
  ) => Promise<Kind>;
  readonly onChange: (listener: () => void) => void;
}

function createParts({ log, onStep, signal }: StackOptions): Parts {
  const started: Supervised<Service>[] = [];
  let changed = (): void => undefined;
  return {
    started: () => started,
    onChange: (listener) => {
      changed = listener;
    },
    async run(name, start, describe = () => name) {
      const since = performance.now();
      signal.throwIfAborted();
      const part = await supervise({ name, start, log, onRestart: () => changed() });
      started.push(part);
      signal.throwIfAborted();
      onStep(describe(part.current()), performance.now() - since);
      return part.current();
    },
  };
}

/** The three servers start at the same time, each with what prepares it; a failure waits for the others, to end them. */
async function startServices(
  options: StackOptions,
  { parts, guard }: { parts: Parts; guard: StartedGuard },
): Promise<Targets> {
  const { dataDir } = options;
  const ports = await choosePorts(dataDir.portsFile);
  const starting = { options, parts, guard, ports };
  const [database, temporal, broker] = await Promise.allSettled([
    startDatabase(starting),
    startTemporalServer(starting),
    startMessaging(starting),
  ]);
  return {
    ...valueOf(database),
    ...valueOf(temporal),
    ...valueOf(broker),
  };
}

interface Starting {
  readonly options: StackOptions;
  readonly parts: Parts;
  readonly guard: StartedGuard;
  readonly ports: Ports;
}

async function startDatabase({
  options,
  parts,
  guard,
  ports,
}: Starting): Promise<Pick<Targets, "databaseUrl" | "adminDatabaseUrl">> {
  const { dataDir, onStep } = options;
  const { postgresPassword, remitPassword } = secretsOf(dataDir);
  const postgres = await parts.run<Postgres>(
    "postgres",
    async () =>
      await startPostgres({
        dir: dataDir.postgres,
        port: ports.postgres,
        password: postgresPassword,
        logFile: join(dataDir.logs, "postgres.log"),
        guard,
      }),
    ({ version }) => `postgres ${version}`,
  );
  const since = performance.now();
  const adminDatabaseUrl = await createDatabase(postgres.adminDatabaseUrl, "remit");
  const { applied } = await migrate({ adminDatabaseUrl });
  await createLoginRole({ adminDatabaseUrl, role: "remit", password: remitPassword });
  onStep(`migrations (${applied.length} applied)`, performance.now() - since);

  const databaseUrl = new URL(adminDatabaseUrl);
  databaseUrl.username = "remit";
  databaseUrl.password = remitPassword;
  return { databaseUrl: databaseUrl.href, adminDatabaseUrl };
}

async function startTemporalServer({
  options,
  parts,
  guard,
  ports,
}: Starting): Promise<Pick<Targets, "temporalAddress" | "temporalNamespace" | "temporalUiUrl">> {
  const { dataDir, env, log } = options;
  const cacheDir = defaultCacheDir(env, REPOSITORY_DIR);
  const binary = await ensureTemporalBinary({ cacheDir, log });
  const temporal = await parts.run<TemporalServer>(
    "temporal",
    async () =>
      await startTemporal({
        binary,
        dir: dataDir.temporal,
        port: ports.temporal,
        uiPort: ports.temporalUi,
        logFile: join(dataDir.logs, "temporal.log"),
        guard,
      }),
  );
  const { address, namespace, uiUrl } = temporal;
  return { temporalAddress: address, temporalNamespace: namespace, temporalUiUrl: uiUrl };
}

async function startMessaging({
  options,
  parts,
  guard,
  ports,
}: Starting): Promise<
  Pick<Targets, "awsEndpointUrl" | "awsRegion" | "topicArn" | "ledgerQueueUrl" | "ledgerDlqUrl">
> {
  const { dataDir, onStep } = options;
  const { endpointUrl, region } = await parts.run<Broker>(
    "broker",
    async () =>
      await startBroker({
        dir: dataDir.broker,
        port: ports.broker,
        logFile: join(dataDir.logs, "broker.log"),
        guard,
      }),
  );
  const since = performance.now();
  const credentials = { accessKeyId: "local", secretAccessKey: "local" };
  const topology = await ensureTopology({ endpointUrl, region, credentials });
  onStep("topic, ledger queue, dead-letter queue", performance.now() - since);
  const { topicArn, ledgerQueueUrl, ledgerDlqUrl } = topology;
  return { awsEndpointUrl: endpointUrl, awsRegion: region, topicArn, ledgerQueueUrl, ledgerDlqUrl };
}

function workerOptions(
  { dataDir, env }: StackOptions,
  targets: Targets,
  guard: StartedGuard,
): Parameters<typeof startWorker>[0] {
  return { targets, dir: dataDir.path, logFile: join(dataDir.logs, "worker.log"), env, guard };
}

function runningStack({
  options: { dataDir },
  parts,
  guard,
  targets,
}: {
  options: StackOptions;
  parts: Parts;
  guard: StartedGuard;
  targets: Targets;
}): Stack {
  const file = (): StackFile => ({
    ...targets,
    pid: process.pid,
    processes: parts.started().map(({ name, current }) => ({ name, pid: current().pid })),
  });
  parts.onChange(() => writeWhole(dataDir.stackFile, file()));
  writeWhole(dataDir.stackFile, file());
  return { file, stop: async () => await stopAll({ dataDir, parts, guard }) };
}

const STOP_ORDER = ["worker", "broker", "temporal", "postgres"];

async function stopAll({
  dataDir,
  parts,
  guard,
}: {
  dataDir: DataDir;
  parts: Parts;
  guard: StartedGuard;
}): Promise<void> {
  parts.onChange(() => undefined);
  const started = parts.started();
  for (const name of STOP_ORDER) await started.find((part) => part.name === name)?.stop();
  rmSync(dataDir.stackFile, { force: true });
  await guard.close();
}

function valueOf<Value>(result: PromiseSettledResult<Value>): Value {
  if (result.status === "rejected") throw result.reason;
  return result.value;
}
