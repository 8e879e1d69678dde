import { setTimeout as delay } from "node:timers/promises";
import { Client } from "@temporalio/client";
import { NativeConnection, Runtime, Worker } from "@temporalio/worker";
import type { WorkerOptions } from "@temporalio/worker";
import { guardActivities } from "../activities/activity-failure.ts";
import { createLedgerActivities } from "../activities/ledger-activities.ts";
import { createPaymentActivities } from "../activities/payment-activities.ts";
import { createRelayActivities } from "../activities/relay-activities.ts";
import { createSupervisorActivities } from "../activities/supervise.ts";
import type { SupervisorActivities } from "../activities/supervise.ts";
import type { Settings } from "../config/settings.ts";
import { createDatabase } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { createOutboxListener, createOutboxNotifier } from "../database/outbox-wake-up.ts";
import { checkDatabase } from "../database/start-up-checks.ts";
import { DomainError } from "../domain/errors.ts";
import { createSnsClient, createSqsClient } from "../messaging/aws-clients.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { POLL_SECONDS, createSqsReceiver } from "../messaging/sqs-receiver.ts";
import { createLogger } from "../observability/logger.ts";
import type { Logger } from "../observability/logger.ts";
import { TASK_QUEUES } from "../workflows/messages.ts";
import { startLedgerIntake } from "./ledger-intake.ts";
import type { IntakeEvent } from "./ledger-intake.ts";
import { ROLES, shardRanges } from "./roles.ts";
import type { Role } from "./roles.ts";
import { ensureSupervisorSchedule } from "./supervisor-schedule.ts";
import { createTemporalStarts } from "./temporal-starts.ts";
import type { TemporalStarts } from "./temporal-starts.ts";
import { temporalLogger } from "./temporal-logger.ts";
import { workflowBundle } from "./workflow-bundle.ts";

/** After this long an activity that ignores its cancellation is left behind; its lease or its retry takes over. */
const SHUTDOWN_FORCE_TIME = "12 seconds";
/** A dead worker's sticky queue is given up after this long instead of 10 s. */
const STICKY_TIMEOUT = "1 second";
/** How fast a pause or a shutdown reaches a window of the relay. */
const HEARTBEAT_THROTTLE = "1 second";

const SUPERVISION_RETRY_MS = 2_000;

/**
 * Runs the worker's roles in this process until `signal`: then the intake stops first, and the workers drain. Calls
 * `onReady` when all of it polls.
 *
 * @throws DomainError `usage` where the database refuses this role, `database_unreachable`, `temporal_unreachable`
 */
export async function runWorker(
  settings: Settings,
  roles: readonly Role[] = ROLES,
  { signal, onReady }: { signal: AbortSignal; onReady?: () => void },
): Promise<void> {
  const logger = createLogger({ name: "remit-worker", level: settings.worker.logLevel });
  const parts = new Parts();
  try {
    const database = parts.add(
      createDatabase({
        url: settings.databaseUrl,
        poolMax: settings.worker.databasePoolMax,
        applicationName: "remit-worker",
      }),
    );
    await checkDatabase(database);
    Runtime.install({ logger: temporalLogger(logger), shutdownSignals: [] });
    const connection = parts.add(await connect(settings));
    const client = new Client({ connection, namespace: settings.temporal.namespace });
    const starts = createTemporalStarts(client);
    const supervision = createSupervisorActivities({
      database,
      startRelays: async () => await startRelays(starts, settings),
      startPayment: starts.startPayment,
      startLedgerEntry: starts.startLedgerEntry,
    });
    const workers = await createWorkers({
      settings,
      roles,
      logger,
      database,
      connection,
      starts,
      supervision,
      parts,
    });
    const running = Promise.all(workers.map(async (worker) => await worker.run()));
    if (roles.includes("payments")) superviseAtBoot({ client, supervision, logger, signal });
    if (roles.includes("ledger")) parts.first(startIntake({ settings, starts, logger, parts }));
    logger.info({ roles }, "worker is ready");
    onReady?.();
    await Promise.race([running, aborted(signal)]);
    logger.info("worker drains");
    await parts.stopFirst();
    for (const worker of workers) if (worker.getState() === "RUNNING") worker.shutdown();
    await running;
  } finally {
    await parts.close();
  }
}

interface WorkerParts {
  readonly settings: Settings;
  readonly roles: readonly Role[];
  readonly logger: Logger;
  readonly database: Database;
  readonly connection: NativeConnection;
  readonly starts: TemporalStarts;
  readonly supervision: SupervisorActivities;
  readonly parts: Parts;
}

async function createWorkers(context: WorkerParts): Promise<Worker[]> {
  const { settings, roles, connection } = context;
  const bundle = await workflowBundle(temporalLogger(context.logger));
  const activities = createActivities(context);
  return await Promise.all(
    roles.map(
      async (role) =>
        await Worker.create({
          connection,
          namespace: settings.temporal.namespace,
          taskQueue: TASK_QUEUES[role],
          workflowBundle: bundle,
          stickyQueueScheduleToStartTimeout: STICKY_TIMEOUT,
          shutdownForceTime: SHUTDOWN_FORCE_TIME,
          ...activities[role](),
        }),
    ),
  );
}

/** Made when asked for: a role that doesn't run opens no connection. */
function createActivities({
  settings,
  logger,
  database,
  starts,
  supervision,
  parts,
}: WorkerParts): Record<Role, () => Partial<WorkerOptions>> {
  const notifier = createOutboxNotifier(database.pool);
  const guard = <Activities extends object>(activities: Activities): Activities =>
    guardActivities(activities, (activity, err) =>
      logger.warn({ activity, err }, "activity failed"),
    );
  return {
    payments: () => ({
      activities: guard({ ...createPaymentActivities({ database, notifier }), ...supervision }),
    }),
    ledger: () => ({
      activities: guard(
        createLedgerActivities({ database, notifier, signalPayment: starts.signalPayment }),
      ),
    }),
    relay: () => {
      const sns = createSnsClient(settings.aws, {
        requestTimeoutMs: settings.worker.sendTimeoutMs,
      });
      parts.add({ close: async () => await Promise.resolve(sns.destroy()) });
      const listener = parts.add(
        createOutboxListener({
          databaseUrl: settings.databaseUrl,
          onStateChange: (state) => logger.info(state, "outbox listener"),
        }),
      );
      return {
        maxHeartbeatThrottleInterval: HEARTBEAT_THROTTLE,
        activities: guard(
          createRelayActivities({
            database,
            publisher: createSnsPublisher(sns, settings.topicArn),
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

function startIntake({
  settings,
  starts,
  logger,
  parts,
}: Pick<WorkerParts, "settings" | "starts" | "logger" | "parts">): { close(): Promise<void> } {
  const polling = createSqsClient(settings.aws, { requestTimeoutMs: (POLL_SECONDS + 5) * 1_000 });
  const answering = createSqsClient(settings.aws, { requestTimeoutMs: 5_000 });
  for (const sqs of [polling, answering]) {
    parts.add({ close: async () => await Promise.resolve(sqs.destroy()) });
  }
  const intake = startLedgerIntake({
    receiver: createSqsReceiver({ polling, answering, queueUrl: settings.ledgerQueueUrl }),
    startLedgerEntry: starts.startLedgerEntry,
    probeTemporal: starts.probe,
    report: (event) => reportIntake(logger, event),
  });
  return { close: intake.stop };
}

function reportIntake(logger: Logger, event: IntakeEvent): void {
  if (event.kind === "back") logger.info(event, "intake goes on");
  else if (event.kind === "away")
    logger.warn({ what: event.what, err: event.error }, "intake waits");
  else logger.error(event, "message is malformed and goes to the dead-letter queue");
}

/** Right away and until it has worked once; afterwards the Schedule does it. */
function superviseAtBoot({
  client,
  supervision,
  logger,
  signal,
}: {
  client: Client;
  supervision: SupervisorActivities;
  logger: Logger;
  signal: AbortSignal;
}): void {
  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        await supervision.startMissing();
        await ensureSupervisorSchedule(client);
        return;
      } catch (err) {
        logger.warn({ err }, "supervision failed, tried again");
        await delay(SUPERVISION_RETRY_MS, undefined, { signal }).catch(() => undefined);
      }
    }
  };
  void run();
}

async function startRelays(starts: TemporalStarts, { worker }: Settings): Promise<number> {
  const ranges = shardRanges(worker.relayRanges);
  for (const range of ranges) await starts.startRelay(range);
  return ranges.length;
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

/** What must be closed, newest first; the one that takes work in is stopped before the workers drain. */
class Parts {
  readonly #parts: { close(): Promise<void> }[] = [];
  #first: { close(): Promise<void> } | undefined;

  add<Part extends { close(): Promise<void> }>(part: Part): Part {
    this.#parts.push(part);
    return part;
  }

  first(part: { close(): Promise<void> }): void {
    this.#first = part;
  }

  async stopFirst(): Promise<void> {
    await this.#first?.close();
    this.#first = undefined;
  }

  async close(): Promise<void> {
    await this.stopFirst();
    for (const part of this.#parts.toReversed()) await part.close();
  }
}
