import { loadEnvironmentSettings } from "../config/process-settings.ts";
import { ROLES } from "./roles.ts";
import { runWorker } from "./run-worker.ts";
import { stopSignals } from "./stop-signals.ts";

/** The worker as a process of its own: all roles, until SIGTERM, SIGINT, or the end of the process that started it. */
const stopping = stopSignals();
process.once("disconnect", () => stopping.abort());

try {
  const { drained } = await runWorker(loadEnvironmentSettings(), ROLES, {
    signal: stopping.signal,
    onReady: () => process.send?.({ type: "ready" }),
  });
  process.exit(drained ? 0 : 1);
} catch (error) {
  process.stderr.write(
    `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  );
  process.exit(1);
}
