import { Client } from "@temporalio/client";
import { NativeConnection, Worker } from "@temporalio/worker";
import { createSupervisorActivities } from "../activities/supervise.ts";
import type { Settings } from "../config/settings.ts";
import { createDatabaseProbe } from "../database/database-probe.ts";
import { createDatabase } from "../database/database.ts";
import { checkDatabase } from "../database/start-up-checks.ts";
import { DomainError } from "../domain/errors.ts";
import { startHealthServer } from "../observability/health.ts";
import { createLogger } from "../observability/logger.ts";
import { TASK_QUEUES } from "../workflows/messages.ts";
import {
  WorkerHealth,
  databaseCheck,
  intakeCheck,
  pollingCheck,
  temporalCheck,
} from "./health-checks.ts";
import { OpenParts } from "./open-parts.ts";
import type { WorkerEnd } from "./open-parts.ts";
import { startRelays } from "./relay-ranges.ts";
import { createRelayStarts } from "./relay-starts.ts";
import { checkRetention } from "./retention-check.ts";
import { createActivities } from "./role-activities.ts";
import { ROLES } from "./roles.ts";
import type { Role } from "./roles.ts";
import { startSqsIntake } from "./sqs-intake.ts";
import { superviseAtBoot } from "./supervise-at-boot.ts";
import { createTemporalStarts } from "./temporal-starts.ts";
import { temporalLogger } from "./temporal-logger.ts";
import { installTemporalRuntime } from "./temporal-metrics.ts";
import { versioningOf } from "./versioning.ts";
import { WorkerMetrics, databasePart, queuesPart } from "./worker-metrics.ts";
import type { WorkContext, WorkerParts } from "./work-context.ts";
import { workflowBundle } from "./workflow-bundle.ts";

/** A dead worker's sticky queue is given up after this long instead of 10 s. */
const STICKY_TIMEOUT = "1 second";

/**
 * Runs the worker's roles in this process until `signal`: then readiness goes first, the intake second, and the workers
 * drain before their connections are closed. Calls `onReady` when all of it polls. A caller ends its process after it:
 * what didn't drain in time still runs.
 *
 * @throws DomainError `usage` where the database refuses this role, `database_unreachable`, `temporal_unreachable`
 */
export async function runWorker(
  settings: Settings,
  roles: readonly Role[] = ROLES,
  { signal, onReady }: { signal: AbortSignal; onReady?: () => void },
): Promise<WorkerEnd> {
  const { shutdownGraceMs, logLevel } = settings.worker;
  const logger = createLogger({ name: "remit-worker", level: logLevel });
  const parts = new OpenParts();
  const health = new WorkerHealth();
  const measured = new WorkerMetrics();
  const work = async (): Promise<void> => {
    const context = { settings, roles, logger, parts, health, measured, signal };
    await answerProbes(context);
    const { ended } = await startWork(context);
    signal.throwIfAborted();
    health.phase = "running";
    logger.info({ roles }, "worker is ready");
    onReady?.();
    await ended;
  };
  const failure = await Promise.race([work(), aborted(signal)]).then(
    () => null,
    (error: unknown) => ({ error }),
  );
  health.phase = "draining";
  logger.info("worker drains");
  const end = await parts.closeWithin(shutdownGraceMs);
  if (!end.drained) {
    logger.error({ open: end.open }, `worker did not drain within ${shutdownGraceMs} ms`);
  }
  if (failure !== null) throw failure.error;
  return end;
}

/** Resolves when all roles poll; `ended` settles when one of them fails or all have drained. */
async function startWork(context: WorkContext): Promise<{ ended: Promise<unknown> }> {
  const { settings, roles, logger, parts, health, measured, signal } = context;
  const database = parts.add(
    "database pool",
    createDatabase({
      url: settings.databaseUrl,
      poolMax: settings.worker.databasePoolMax,
      applicationName: "remit-worker",
    }),
  );
  measured.watchPool(database);
  await checkDatabase(database);
  if (roles.includes("ledger")) await checkRetention(settings, logger);
  const isMeasured = settings.worker.healthPort !== null;
  measured.readTemporalFrom(await installTemporalRuntime(logger, { isMeasured }));
  const connection = parts.add("Temporal connection", await connect(settings));
  const client = new Client({ connection, namespace: settings.temporal.namespace });
  const starts = createTemporalStarts(client);
  health.add(temporalCheck(client));
  const relays = createRelayStarts(client);
  const supervision = createSupervisorActivities({
    ...starts,
    startLedgerEntry: starts.startLedgerEntryAgain,
    database,
    startRelays: async () => await startRelays(relays, settings.worker.relayRanges),
  });
  const workers = await createWorkers({ ...context, database, connection, starts, supervision });
  signal.throwIfAborted();
  const ended = runAll(workers, { parts, health });
  if (roles.includes("payments")) superviseAtBoot({ client, supervision, logger, signal });
  if (roles.includes("ledger")) {
    const intake = startSqsIntake({
      settings,
      database,
      starts,
      logger,
      parts,
      metrics: measured.metrics,
    });
    health.add(intakeCheck(intake));
  }
  return { ended };
}

function runAll(
  workers: readonly Worker[],
  { parts, health }: Pick<WorkContext, "parts" | "health">,
): Promise<unknown> {
  const states = workers.map((worker) => ({
    taskQueue: worker.options.taskQueue,
    state: () => worker.getState(),
  }));
  health.add(pollingCheck(states));
  const runs = workers.map(async (worker) => await worker.run());
  const ended = Promise.all(runs);
  // A failure between here and where it is awaited must not end the process before the parts are closed.
  ended.catch(() => undefined);
  parts.add(() => workers.map(whatItDoes).join(", "), {
    close: async () => {
      for (const worker of workers) if (worker.getState() === "RUNNING") worker.shutdown();
      await Promise.allSettled(runs);
      await ended;
    },
  });
  return ended;
}

function whatItDoes(worker: Worker): string {
  const { runState, numInFlightActivities, numInFlightWorkflowActivations } = worker.getStatus();
  return (
    `worker of ${worker.options.taskQueue} (${runState}, activities: ${numInFlightActivities}, ` +
    `workflow tasks: ${numInFlightWorkflowActivations})`
  );
}

async function answerProbes({
  settings,
  roles,
  logger,
  parts,
  health,
  measured,
}: WorkContext): Promise<void> {
  const { databaseUrl, worker } = settings;
  if (worker.healthPort === null) return;
  const { url } = parts.add(
    "health server",
    await startHealthServer({
      address: worker.healthAddress,
      port: worker.healthPort,
      checks: health.checks,
      metrics: measured.page(settings, health.checks),
    }),
  );
  measured.add(databasePart(settings, parts));
  if (roles.includes("ledger")) measured.add(queuesPart(settings, parts));
  health.add(databaseCheck(parts.add("health connection", createDatabaseProbe(databaseUrl))));
  logger.info({ url }, "health probes are answered");
}

async function createWorkers(context: WorkerParts): Promise<Worker[]> {
  const { settings, roles, connection } = context;
  const bundle = await workflowBundle(temporalLogger(context.logger));
  const activities = createActivities(context);
  return await Promise.all(
    roles.flatMap((role) => {
      const options = activities[role]();
      return QUEUES_OF_ROLE[role].map(
        async (taskQueue) =>
          await Worker.create({
            connection,
            namespace: settings.temporal.namespace,
            taskQueue,
            workflowBundle: bundle,
            stickyQueueScheduleToStartTimeout: STICKY_TIMEOUT,
            ...versioningOf(settings.worker, taskQueue),
            ...options,
          }),
      );
    }),
  );
}

const QUEUES_OF_ROLE: Readonly<Record<Role, readonly string[]>> = {
  payments: [TASK_QUEUES.payments, TASK_QUEUES.manualPayments],
  relay: [TASK_QUEUES.relay],
  ledger: [TASK_QUEUES.ledger],
};

async function connect({ temporal }: Settings): Promise<NativeConnection> {
  try {
    return await NativeConnection.connect({
      ...temporal.connectionOptions,
      address: temporal.address,
    });
  } catch (cause) {
    throw new DomainError(
      "temporal_unreachable",
      `Temporal does not answer at ${temporal.address}`,
      { cause },
    );
  }
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}
