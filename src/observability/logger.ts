import { pino } from "pino";
import type { Logger as PinoLogger } from "pino";

export type Logger = PinoLogger;

/** JSON lines on stderr, so that a command's stdout stays data. What could hold a secret or a parameter is cut out. */
export function createLogger({ name, level }: { name: string; level: string }): Logger {
  return pino(
    {
      name,
      level,
      redact: ["*.password", "*.connectionString", "*.databaseUrl", "databaseUrl"],
      serializers: { err: describeError },
    },
    pino.destination({ fd: 2, sync: true }),
  );
}

/** Name, message, code and stack; of pg's errors not the detail, which quotes the row. */
function describeError(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { message: String(error) };
  const { code } = error as { code?: unknown };
  return {
    name: error.name,
    message: error.message,
    ...(code === undefined ? {} : { code }),
    stack: error.stack,
    ...(error.cause === undefined ? {} : { cause: describeError(error.cause) }),
  };
}
