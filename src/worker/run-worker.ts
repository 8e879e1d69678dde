import { Client } from "@temporalio/client";
import { NativeConnection, Runtime, Worker } from "@temporalio/worker";
import type { WorkerOptions } from "@temporalio/worker";
import { guardActivities } from "../activities/activity-failure.ts";
import { createLedgerActivities } from "../activities/ledger-activities.ts";
import { createPaymentActivities } from "../activities/payment-activities.ts";
import { createReconciliationActivities } from "../activities/reconcile.ts";
import { createRetentionActivities } from "../activities/retention.ts";
import { createRelayActivities } from "../activities/relay-activities.ts";
import { createSupervisorActivities } from "../activities/supervise.ts";
import type { SupervisorActivities } from "../activities/supervise.ts";
import type { Settings } from "../config/settings.ts";
import { createDatabaseProbe } from "../database/database-probe.ts";
import { createDatabase } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { createOutboxListener, createOutboxNotifier } from "../database/outbox-wake-up.ts";
import { checkDatabase } from "../database/start-up-checks.ts";
import { DomainError } from "../domain/errors.ts";
import { createSnsClient } from "../messaging/aws-clients.ts";
import { watchContact } from "../messaging/publisher-contact.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { startHealthServer } from "../observability/health.ts";
import { createLogger } from "../observability/logger.ts";
import type { Logger } from "../observability/logger.ts";
import { TASK_QUEUES } from "../workflows/messages.ts";
import {
  WorkerHealth,
  brokerCheck,
  databaseCheck,
  intakeCheck,
  listenerCheck,
  pollingCheck,
  temporalCheck,
} from "./health-checks.ts";
import { OpenParts } from "./open-parts.ts";
import type { WorkerEnd } from "./open-parts.ts";
import { startRelays } from "./relay-ranges.ts";
import { createRelayStarts } from "./relay-starts.ts";
import { assertRetention, checkRetention } from "./retention-check.ts";
import { ROLES } from "./roles.ts";
import type { Role } from "./roles.ts";
import { startSqsIntake } from "./sqs-intake.ts";
import { superviseAtBoot } from "./supervise-at-boot.ts";
import { createTemporalStarts } from "./temporal-starts.ts";
import type { TemporalStarts } from "./temporal-starts.ts";
import { temporalLogger } from "./temporal-logger.ts";
import { versioningOf } from "./versioning.ts";
import { workflowBundle } from "./workflow-bundle.ts";

/** A dead worker's sticky queue is given up after this long instead of 10 s. */
const STICKY_TIMEOUT = "1 second";
/** How fast a pause or a shutdown reaches a window of the relay. */
const HEARTBEAT_THROTTLE = "1 second";

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
  const work = async (): Promise<void> => {
    await answerProbes({ settings, logger, parts, health });
    const { ended } = await startWork({ settings, roles, logger, parts, health, signal });
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

interface WorkContext {
  readonly settings: Settings;
  readonly roles: readonly Role[];
  readonly logger: Logger;
  readonly parts: OpenParts;
  readonly health: WorkerHealth;
  readonly signal: AbortSignal;
}

/** Resolves when all roles poll; `ended` settles when one of them fails or all have drained. */
async function startWork(context: WorkContext): Promise<{ ended: Promise<unknown> }> {
  const { settings, roles, logger, parts, health, signal } = context;
  const database = parts.add(
    "database pool",
    createDatabase({
      url: settings.databaseUrl,
      poolMax: settings.worker.databasePoolMax,
      applicationName: "remit-worker",
    }),
  );
  await checkDatabase(database);
  if (roles.includes("ledger")) await checkRetention(settings, logger);
  Runtime.install({ logger: temporalLogger(logger), shutdownSignals: [] });
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
    const intake = startSqsIntake({ settings, database, starts, logger, parts });
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
  settings: { databaseUrl, worker },
  logger,
  parts,
  health,
}: Pick<WorkContext, "settings" | "logger" | "parts" | "health">): Promise<void> {
  if (worker.healthPort === null) return;
  const { url } = parts.add(
    "health server",
    await startHealthServer({
      address: worker.healthAddress,
      port: worker.healthPort,
      checks: health.checks,
    }),
  );
  health.add(databaseCheck(parts.add("health connection", createDatabaseProbe(databaseUrl))));
  logger.info({ url }, "health probes are answered");
}

interface WorkerParts extends WorkContext {
  readonly database: Database;
  readonly connection: NativeConnection;
  readonly starts: TemporalStarts;
  readonly supervision: SupervisorActivities;
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

/** Made when asked for: a role that doesn't run opens no connection. */
function createActivities({
  settings,
  logger,
  database,
  starts,
  supervision,
  parts,
  health,
}: WorkerParts): Record<Role, () => Partial<WorkerOptions>> {
  const notifier = createOutboxNotifier(database.pool);
  const assertQueuesForget = async (): Promise<void> => await assertRetention(settings);
  const guard = <Activities extends object>(activities: Activities): Activities =>
    guardActivities(activities, (activity, err) =>
      logger.warn({ activity, err }, "activity failed"),
    );
  return {
    payments: () => ({
      activities: guard({ ...createPaymentActivities({ database, notifier }), ...supervision }),
    }),
    ledger: () => ({
      activities: guard({
        ...createLedgerActivities({ database, notifier, signalDecision: starts.signalDecision }),
        ...createReconciliationActivities({ database }),
        ...createRetentionActivities({ database, ...settings.worker, assertQueuesForget }),
      }),
    }),
    relay: () => {
      const sns = createSnsClient(settings.aws, {
        requestTimeoutMs: settings.worker.sendTimeoutMs,
      });
      parts.add("SNS client", { close: async () => await Promise.resolve(sns.destroy()) });
      const listener = parts.add(
        "LISTEN connection",
        createOutboxListener({
          databaseUrl: settings.databaseUrl,
          onStateChange: (state) => logger.info(state, "outbox listener"),
        }),
      );
      const { callsInFlightMax } = settings.worker;
      const { publisher, contact } = watchContact(
        createSnsPublisher(sns, settings.topicArn, { callsInFlightMax }),
      );
      health.add(brokerCheck(contact), listenerCheck(listener, settings.worker));
      return {
        maxHeartbeatThrottleInterval: HEARTBEAT_THROTTLE,
        activities: guard(
          createRelayActivities({
            database,
            publisher,
            listener,
            leaseMs: settings.worker.leaseMs,
            sendTimeoutMs: settings.worker.sendTimeoutMs,
            pollIntervalMs: settings.worker.pollIntervalMs,
          }),
        ),
      };
    },
  };
}

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
