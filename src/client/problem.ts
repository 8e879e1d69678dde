import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import type { ErrorCode } from "../domain/errors.ts";

/** RFC 9457, with Remit's stable `code` and what the refusal knows besides. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly detail: string;
  readonly code: ErrorCode;
  readonly [extension: string]: unknown;
}

/** Writes a refusal as an RFC 9457 document; its details become members, and never replace the standard ones. */
export function toProblem(error: DomainError): ProblemDocument {
  return {
    ...error.details,
    type: `urn:remit:problem:${error.code}`,
    title: ERROR_CODES[error.code].title,
    detail: error.message,
    code: error.code,
  };
}

/** Whatever was thrown, as a refusal; what nobody foresaw is `internal`. */
export function toDomainErrorOrInternal(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new DomainError("internal", message, { cause: error });
}
