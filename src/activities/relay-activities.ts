import { cancellationSignal, heartbeat } from "@temporalio/activity";
import type { OutboxListener } from "../database/outbox-wake-up.ts";
import { publishOutbox } from "./publish-outbox.ts";
import type { PublishOutboxInput } from "./publish-outbox.ts";
import type { PublishOutboxSummary, RelayReport } from "./relay-progress.ts";
import type { BatchDependencies } from "./publish-outbox-batch.ts";

export interface RelayActivities {
  readonly publishOutbox: (input: PublishOutboxInput) => Promise<PublishOutboxSummary>;
}

export interface RelayDependencies extends BatchDependencies {
  readonly listener: OutboxListener;
  readonly pollIntervalMs: number;
  readonly report: RelayReport;
}

/** The relay's one activity; see `publishOutbox` for what happens when it runs twice. */
export function createRelayActivities({
  listener,
  pollIntervalMs,
  report,
  ...batch
}: RelayDependencies): RelayActivities {
  return {
    async publishOutbox(input) {
      return await publishOutbox(
        {
          ...batch,
          signal: cancellationSignal(),
          heartbeat: (summary) => heartbeat(summary),
          report,
          watchOutbox: () => {
            const watch = listener.watch();
            return { wait: async (signal) => await watch.wait(pollIntervalMs, signal) };
          },
        },
        input,
      );
    },
  };
}
