import { pino } from "pino";
import type { DestinationStream, Logger as PinoLogger } from "pino";

export type Logger = PinoLogger;

/** What is cut out wherever it stands in a line, to the second level: secrets, and what a payment's own words may say. */
const SECRET_FIELDS = [
  "password",
  "connectionString",
  "databaseUrl",
  "adminDatabaseUrl",
  "apiKey",
  "secretAccessKey",
  "sessionToken",
  "authorization",
  "payload",
  "description",
];

/** JSON lines on stderr, so that a command's stdout stays data. What could hold a secret or a parameter is cut out. */
export function createLogger(
  { name, level }: { name: string; level: string },
  destination: DestinationStream = pino.destination({ fd: 2, sync: true }),
): Logger {
  return pino(
    {
      name,
      level,
      redact: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
      serializers: { err: describeError, error: describeError },
    },
    destination,
  );
}

/** Name, message, code and stack; of pg's errors not the detail, which quotes the row. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return typeof error === "string" ? withoutUserinfo(error) : error;
  const { code } = error as { code?: unknown };
  return {
    name: error.name,
    message: withoutUserinfo(error.message),
    ...(code === undefined ? {} : { code }),
    stack: withoutUserinfo(error.stack ?? ""),
    ...(error.cause === undefined ? {} : { cause: describeError(error.cause) }),
  };
}

/** An address in somebody's message may hold a user and a password. */
function withoutUserinfo(text: string): string {
  return text.replaceAll(/\/\/[^\s/@]*@/g, "//");
}
