import { DefaultLogger } from "@temporalio/worker";
import type { Logger } from "../observability/logger.ts";

const LEVELS = {
  TRACE: "trace",
  DEBUG: "debug",
  INFO: "debug",
  WARN: "warn",
  ERROR: "error",
} as const;

/** Temporal's own log lines through our logger; its INFO is chatter about polls and states. */
export function temporalLogger(logger: Logger): DefaultLogger {
  return new DefaultLogger("INFO", ({ level, message, meta }) => {
    logger[LEVELS[level]]({ ...meta }, message);
  });
}
