import { DomainError } from "../domain/errors.ts";

/** A failure of PostgreSQL with what may be shown of it: the SQLSTATE and the constraint, never a bound parameter. */
export class DatabaseError extends Error {
  readonly sqlState: string;
  readonly constraint: string | undefined;

  constructor(sqlState: string, constraint: string | undefined, cause: unknown) {
    super(`SQLSTATE ${sqlState}${constraint === undefined ? "" : ` (${constraint})`}`, { cause });
    this.name = "DatabaseError";
    this.sqlState = sqlState;
    this.constraint = constraint;
  }
}

/** Node's codes for a server that isn't there, and the texts of pg for a connection that went away have none at all. */
const CONNECTION_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
  "EPIPE",
  "ENOENT",
]);

/** Turns what pg or drizzle threw into our kinds; a DomainError passes as it is. */
export function databaseError(error: unknown): unknown {
  if (error instanceof DomainError || error instanceof DatabaseError) return error;
  const { code, constraint } = driverFields(error);
  if (code !== undefined && /^[0-9A-Z]{5}$/.test(code) && !CONNECTION_CODES.has(code)) {
    // Class 08 connection exception, 57P0x shutting or starting up, 53300 too many connections.
    if (code.startsWith("08") || code.startsWith("57P0") || code === "53300") {
      return unreachable(error, code);
    }
    if (code === "3D000" || code.startsWith("28")) return unreachable(error, code);
    return new DatabaseError(code, constraint, error);
  }
  if ((code !== undefined && CONNECTION_CODES.has(code)) || isConnectionLoss(error)) {
    return unreachable(error, code ?? "connection lost");
  }
  return error;
}

/** 40001 serialization_failure, 40P01 deadlock_detected: the same work may succeed at once. */
export function isRetryableConflict(error: unknown): boolean {
  return error instanceof DatabaseError && /^40(001|P01)$/.test(error.sqlState);
}

/** The named constraint that refused a statement, or undefined. */
export function violatedConstraint(error: unknown): string | undefined {
  return error instanceof DatabaseError ? error.constraint : undefined;
}

function unreachable(cause: unknown, reason: string): DomainError {
  return new DomainError("database_unreachable", `PostgreSQL does not answer (${reason})`, {
    cause,
  });
}

/** pg rejects queries of a lost connection with plain Errors; their text is all there is to tell them by. */
function isConnectionLoss(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isConnectionLoss);
  const text = `${error.message} ${error.cause instanceof Error ? error.cause.message : ""}`;
  return /Connection terminated|timeout exceeded when trying to connect|not queryable|Client was closed/.test(
    text,
  );
}

function driverFields(error: unknown): { code?: string; constraint?: string } {
  for (let at: unknown = error, depth = 0; at instanceof Error && depth < 5; depth += 1) {
    const { code, constraint } = at as { code?: unknown; constraint?: unknown };
    if (typeof code === "string") {
      return { code, ...(typeof constraint === "string" ? { constraint } : {}) };
    }
    at = at instanceof AggregateError ? at.errors[0] : at.cause;
  }
  return {};
}
