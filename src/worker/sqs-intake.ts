import type { Settings } from "../config/settings.ts";
import type { Database } from "../database/database.ts";
import { countDelivery } from "../database/ledger-queries.ts";
import { createSqsClient } from "../messaging/aws-clients.ts";
import { POLL_SECONDS, createSqsReceiver } from "../messaging/sqs-receiver.ts";
import type { Logger } from "../observability/logger.ts";
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
}: {
  settings: Settings;
  database: Database;
  starts: TemporalStarts;
  logger: Logger;
  parts: OpenParts;
}): Intake {
  const polling = createSqsClient(settings.aws, { requestTimeoutMs: (POLL_SECONDS + 5) * 1_000 });
  const answering = createSqsClient(settings.aws, { requestTimeoutMs: 5_000 });
  for (const sqs of [polling, answering]) {
    parts.add("SQS client", { close: async () => await Promise.resolve(sqs.destroy()) });
  }
  const intake = startLedgerIntake({
    receiver: createSqsReceiver({ polling, answering, queueUrl: settings.ledgerQueueUrl }),
    startLedgerEntry: starts.startLedgerEntry,
    countDelivery: async (messageId) => await countDelivery(database, messageId),
    probeTemporal: starts.probe,
    report: (event) => reportIntake(logger, event),
  });
  parts.add("ledger intake", { close: intake.stop });
  return intake;
}

function reportIntake(logger: Logger, event: IntakeEvent): void {
  if (event.kind === "back") logger.info(event, "intake goes on");
  else if (event.kind === "away")
    logger.warn({ what: event.what, err: event.error }, "intake waits");
  else logger.error(event, "message is malformed and goes to the dead-letter queue");
}
