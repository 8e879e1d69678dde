import type { Settings } from "../config/settings.ts";
import type { Database } from "../database/database.ts";
import { countDelivery } from "../database/ledger-queries.ts";
import { createSqsClient } from "../messaging/aws-clients.ts";
import { POLL_SECONDS, createSqsReceiver } from "../messaging/sqs-receiver.ts";
import type { Logger } from "../observability/logger.ts";
import type { Metrics } from "../observability/metrics.ts";
import { startLedgerIntake } from "./ledger-intake.ts";
import type { Intake, IntakeEvent } from "./ledger-intake.ts";
import type { OpenParts } from "./open-parts.ts";
import type { TemporalStarts } from "./temporal-starts.ts";

/** Starts the intake on the ledger's queue and has its parts closed: the intake first, then its clients. */
export function startSqsIntake({
  settings,
  database,
  starts,
  logger,
  parts,
  metrics,
}: {
  settings: Settings;
  database: Database;
  starts: TemporalStarts;
  logger: Logger;
  parts: OpenParts;
  metrics: Metrics;
}): Intake {
  const polling = createSqsClient(settings.aws, { requestTimeoutMs: (POLL_SECONDS + 5) * 1_000 });
  const answering = createSqsClient(settings.aws, { requestTimeoutMs: 5_000 });
  for (const sqs of [polling, answering]) {
    parts.add("SQS client", { close: async () => await Promise.resolve(sqs.destroy()) });
  }
  const intake = startLedgerIntake({
    receiver: createSqsReceiver({ polling, answering, queueUrl: settings.ledgerQueueUrl }),
    startLedgerEntry: countedStarts(metrics, starts.startLedgerEntry),
    countDelivery: async (messageId) => await countDelivery(database, messageId),
    probeTemporal: starts.probe,
    report: (event) => {
      if (event.kind === "malformed") metrics.deliveries.inc({ result: "malformed" });
      reportIntake(logger, event);
    },
  });
  parts.add("ledger intake", { close: intake.stop });
  return intake;
}

function countedStarts(
  { deliveries, duplicates }: Metrics,
  start: TemporalStarts["startLedgerEntry"],
): TemporalStarts["startLedgerEntry"] {
  return async (message) => {
    try {
      const isNew = await start(message);
      deliveries.inc({ result: isNew ? "started" : "repeated" });
      if (!isNew) duplicates.inc({ by: "workflow" });
      return isNew;
    } catch (error) {
      deliveries.inc({ result: "returned" });
      throw error;
    }
  };
}

function reportIntake(logger: Logger, event: IntakeEvent): void {
  if (event.kind === "back") logger.info(event, "intake goes on");
  else if (event.kind === "away")
    logger.warn({ what: event.what, err: event.error }, "intake waits");
  else if (event.kind === "again") logger.info(event, "message came again and is absorbed");
  else logger.error(event, "message is malformed and goes to the dead-letter queue");
}
