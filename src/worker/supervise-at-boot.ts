import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@temporalio/client";
import type { SupervisorActivities } from "../activities/supervise.ts";
import type { Logger } from "../observability/logger.ts";
import { ensureSchedules } from "./schedules.ts";

const RETRY_MS = 2_000;

/** Starts what is missing right away and until it has worked once; afterwards a Schedule does it. */
export function superviseAtBoot({
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
        const { relays, failed, firstFailure } = await supervision.startMissing();
        await ensureSchedules(client);
        if (failed > 0) logger.warn({ failed, firstFailure }, "supervision left some out");
        // The Schedule goes on with single payments; a relay must be there from the start.
        if (relays > 0) return;
        await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
      } catch (err) {
        logger.warn({ err }, "supervision failed, tried again");
        await delay(RETRY_MS, undefined, { signal }).catch(() => undefined);
      }
    }
  };
  void run();
}
