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

const LOCK_NOT_AVAILABLE = "55P03";

/** Turns what pg or drizzle threw into our kinds; a DomainError passes as it is. */
export function databaseError(error: unknown): unknown {
  if (error instanceof DomainError || error instanceof DatabaseError) return error;
  const { code, constraint } = driverFields(error);
  if (code !== undefined && /^[0-9A-Z]{5}$/.test(code) && !CONNECTION_CODES.has(code)) {
    // Class 08 connection exception, 57P0x shutting or starting up, 53 no room for connections, memory or on the disk.
    if (/^(08|57P0|53)/.test(code)) return unreachable(error, code);
    if (code === LOCK_NOT_AVAILABLE) {
      return unreachable(error, `${code}: another session holds a lock, see remit doctor`);
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
export function isConnectionLoss(error: unknown): error is Error {
  return chainOf(error).some(({ message }) =>
    /Connection terminated|timeout exceeded when trying to connect|timeout expired|not queryable|Client was closed|Query read timeout/.test(
      message ?? "",
    ),
  );
}

function driverFields(error: unknown): { code?: string; constraint?: string } {
  for (const { code, constraint } of chainOf(error)) {
    if (typeof code === "string") {
      return { code, ...(typeof constraint === "string" ? { constraint } : {}) };
    }
  }
  return {};
}

interface ErrorLike {
  readonly message?: string;
  readonly code?: unknown;
  readonly constraint?: unknown;
  readonly cause?: unknown;
  readonly errors?: readonly unknown[];
}

/** An error, its causes, and of an AggregateError (one a resolved address) the first; by shape, not by class. */
function chainOf(error: unknown): ErrorLike[] {
  const chain: ErrorLike[] = [];
  for (let at = error as ErrorLike | null | undefined; at && typeof at === "object";) {
    chain.push(at);
    if (chain.length >= CHAIN_MAX) break;
    at = (at.cause ?? at.errors?.[0]) as ErrorLike | undefined;
  }
  return chain;
}

const CHAIN_MAX = 8;
