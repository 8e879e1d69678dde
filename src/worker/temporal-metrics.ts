import { Runtime } from "@temporalio/worker";
import { freePort } from "../local/ports.ts";
import { temporalLogger } from "./temporal-logger.ts";
import type { Logger } from "../observability/logger.ts";

/** Somebody else may take the port between the look and the bind. */
const PORTS_TRIED_MAX = 5;
const ANSWER_MS_MAX = 700;

/**
 * Installs the SDK's runtime, which a process has once, with its Prometheus exporter where `isMeasured`. The exporter
 * has a listener of its own and no way to be read in the process: it stays on loopback, and `/metrics` has its page too.
 * Answers how to read it.
 */
export async function installTemporalRuntime(
  logger: Logger,
  { isMeasured }: { isMeasured: boolean },
): Promise<(() => Promise<string>) | null> {
  const options = { logger: temporalLogger(logger), shutdownSignals: [] };
  if (!isMeasured) {
    Runtime.install(options);
    return null;
  }
  for (let tried = 1; ; tried += 1) {
    const bindAddress = `127.0.0.1:${await freePort()}`;
    try {
      Runtime.install({ ...options, telemetryOptions: { metrics: exporterAt(bindAddress) } });
      return async () => await readPage(`http://${bindAddress}/metrics`);
    } catch (error) {
      if (tried >= PORTS_TRIED_MAX || !String(error).includes("in use")) throw error;
    }
  }
}

function exporterAt(bindAddress: string): {
  prometheus: {
    bindAddress: string;
    countersTotalSuffix: true;
    unitSuffix: true;
    useSecondsForDurations: true;
  };
} {
  return {
    prometheus: {
      bindAddress,
      countersTotalSuffix: true,
      unitSuffix: true,
      useSecondsForDurations: true,
    },
  };
}

async function readPage(url: string): Promise<string> {
  const answer = await fetch(url, { signal: AbortSignal.timeout(ANSWER_MS_MAX) });
  if (!answer.ok) throw new Error(`Temporal's exporter answers ${answer.status}`);
  return await answer.text();
}
