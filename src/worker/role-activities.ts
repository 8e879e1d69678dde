import type { WorkerOptions } from "@temporalio/worker";
import { guardActivities } from "../activities/activity-failure.ts";
import { createLedgerActivities } from "../activities/ledger-activities.ts";
import type { LedgerActivities } from "../activities/ledger-activities.ts";
import { createPaymentActivities } from "../activities/payment-activities.ts";
import type { PaymentActivities } from "../activities/payment-activities.ts";
import { createReconciliationActivities } from "../activities/reconcile.ts";
import { createRelayActivities } from "../activities/relay-activities.ts";
import { createRetentionActivities } from "../activities/retention.ts";
import { readProgress } from "../database/outbox-view-queries.ts";
import { createOutboxListener, createOutboxNotifier } from "../database/outbox-wake-up.ts";
import { createSnsClient } from "../messaging/aws-clients.ts";
import { watchContact } from "../messaging/publisher-contact.ts";
import { createSnsPublisher } from "../messaging/sns-publisher.ts";
import { brokerCheck, listenerCheck, progressCheck } from "./health-checks.ts";
import {
  logBooking,
  logFailure,
  loggedPayments,
  loggedReconciliation,
  loggedRelay,
  loggedRetention,
  loggedSupervision,
} from "./logged-activities.ts";
import { countRelay, meteredLedger, meteredPayments, meteredRelay } from "./metered-activities.ts";
import { assertRetention } from "./retention-check.ts";
import type { Role } from "./roles.ts";
import type { WorkerParts } from "./work-context.ts";

/** How fast a pause or a shutdown reaches a window of the relay. */
const HEARTBEAT_THROTTLE = "1 second";

/** Made when asked for: a role that doesn't run opens no connection. */
export function createActivities({
  settings,
  logger,
  database,
  starts,
  supervision,
  parts,
  health,
  measured,
}: WorkerParts): Record<Role, () => Partial<WorkerOptions>> {
  const { metrics } = measured;
  const notifier = createOutboxNotifier(database.pool);
  const assertQueuesForget = async (): Promise<void> => await assertRetention(settings);
  const guard = <Activities extends object>(activities: Activities): Activities =>
    guardActivities(activities, (activity, failed) => logFailure(logger, activity, failed));
  const payments = (): PaymentActivities =>
    meteredPayments(metrics, createPaymentActivities({ database, notifier }));
  const ledger = (): LedgerActivities =>
    meteredLedger(
      metrics,
      createLedgerActivities({
        database,
        notifier,
        signalDecision: starts.signalDecision,
        report: (messageId, applied) => logBooking(logger, messageId, applied),
      }),
    );
  return {
    payments: () => ({
      activities: guard({
        ...loggedPayments(logger, payments()),
        ...loggedSupervision(logger, supervision),
      }),
    }),
    ledger: () => ({
      activities: guard({
        ...ledger(),
        ...loggedReconciliation(logger, createReconciliationActivities({ database })),
        ...loggedRetention(
          logger,
          createRetentionActivities({ database, ...settings.worker, assertQueuesForget }),
        ),
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
      health.add(
        brokerCheck(contact),
        listenerCheck(listener, settings.worker),
        progressCheck(async (input) => await readProgress(database, input), settings.worker),
      );
      measured.watchListener(listener);
      return {
        maxHeartbeatThrottleInterval: HEARTBEAT_THROTTLE,
        activities: guard(
          meteredRelay(
            metrics,
            createRelayActivities({
              database,
              publisher,
              listener,
              leaseMs: settings.worker.leaseMs,
              sendTimeoutMs: settings.worker.sendTimeoutMs,
              pollIntervalMs: settings.worker.pollIntervalMs,
              report: loggedRelay(logger, countRelay(metrics)),
            }),
          ),
        ),
      };
    },
  };
}
