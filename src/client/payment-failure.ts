import {
  isGrpcCancelledError,
  isGrpcDeadlineError,
  isGrpcServiceError,
  ServiceError,
  WorkflowFailedError,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from "@temporalio/client";
import { ApplicationFailure, NamespaceNotFoundError } from "@temporalio/common";
import { DomainError, isErrorCode } from "../domain/errors.ts";
import { formatMajor } from "../domain/money.ts";
import type { RecordedParameters } from "../domain/payment.ts";
import type { RefusalDetails } from "../workflows/messages.ts";

/** Whose call failed: what is needed to say it well. */
export interface CallContext {
  readonly requestId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  /** What was asked for, by the names that the key's first request is remembered under. */
  readonly parameters: RecordedParameters;
  /** What amounts are in where the parameters don't say. */
  readonly currency?: string;
}

/** Turns what Temporal's client throws into a DomainError; the one place that knows its errors. */
export function toDomainError(error: unknown, context: CallContext): unknown {
  if (error instanceof DomainError) return error;
  if (error instanceof WorkflowUpdateFailedError) {
    return error.cause instanceof ApplicationFailure
      ? refusalOf(error.cause, context)
      : outcomeUnknown(context, error);
  }
  const connection = connectionError(error);
  if (connection !== undefined) return connection;
  // Whatever else Temporal says of a call, it doesn't say that nothing was recorded.
  const isTemporals = isTimeout(error) || isRunGone(error) || grpcErrorOf(error) !== undefined;
  return isTemporals ? outcomeUnknown(context, error) : error;
}

/** The run's task failed or timed out a few times (its worker was killed again and again): it will be ready again. */
export function isNotReady(error: unknown): boolean {
  return grpcCodeOf(error) === GRPC.failedPrecondition;
}

/** The run closed under the call: Temporal says "workflow update was aborted by closing workflow", gRPC code 5. */
export function isRunGone(error: unknown): boolean {
  return error instanceof WorkflowNotFoundError || grpcCodeOf(error) === GRPC.notFound;
}

/** Temporal took too long, or the caller's deadline cut the call. */
export function isTimeout(error: unknown): boolean {
  return (
    error instanceof WorkflowUpdateRPCTimeoutOrCancelledError ||
    isGrpcDeadlineError(error) ||
    isGrpcCancelledError(error)
  );
}

/** Nobody answers at the address right now. */
export function isUnavailable(error: unknown): boolean {
  return grpcCodeOf(error) === GRPC.unavailable;
}

function refusalOf(failure: ApplicationFailure, context: CallContext): DomainError {
  const details = failure.details?.[0] as Partial<RefusalDetails> | undefined;
  // A failure that isn't in the closed list leaves open what happened to the money.
  if (!isErrorCode(failure.type)) return outcomeUnknown(context, failure);
  const recorded = details?.recorded;
  if (failure.type === "idempotency_key_reused" && recorded !== undefined) {
    const message = contradiction(recorded, context);
    return new DomainError(failure.type, message, { cause: failure });
  }
  const first = details?.requestId ?? "";
  const replayed = first !== "" && first !== context.requestId;
  return new DomainError(failure.type, details?.message ?? failure.message, {
    details: { replayed },
    cause: failure,
  });
}

function contradiction(
  first: RecordedParameters,
  { merchant, idempotencyKey, parameters, currency }: CallContext,
): string {
  const key = `key ${JSON.stringify(idempotencyKey)} of merchant ${merchant}`;
  if ((first["operation"] ?? "pay") !== parameters["operation"]) {
    return `${key} was used before, to ${String(first["operation"] ?? "pay")}: this request is to ${String(parameters["operation"])}`;
  }
  const words = COMPARED.filter(
    ({ read }) => read(first, currency) !== read(parameters, currency),
  ).map(
    ({ name, read }) =>
      `${name} is ${read(first, currency)} in the first request, ${read(parameters, currency)} in this one`,
  );
  return words.length === 0
    ? `${key} was used with other parameters`
    : `${key} was used before: ${words.join("; ")}`;
}

const COMPARED: readonly {
  name: string;
  read: (of: RecordedParameters, currency: string | undefined) => string;
}[] = [
  { name: "payment", read: ({ paymentId }) => shown(paymentId) },
  { name: "from", read: ({ source }) => shown(source) },
  { name: "to", read: ({ destination }) => shown(destination) },
  { name: "amount", read: amountOf },
  { name: "currency", read: ({ currency }) => shown(currency) },
  { name: "capture", read: ({ capture }) => shown(capture) },
  { name: "expiry in seconds", read: ({ expiresInSeconds }) => shown(expiresInSeconds) },
  { name: "final", read: ({ final }) => shown(final) },
  { name: "description", read: ({ description }) => JSON.stringify(description ?? "") },
  { name: "reason", read: ({ reason }) => JSON.stringify(reason ?? "") },
];

function amountOf(
  { amountMinor, currency: said }: RecordedParameters,
  fallback: string | undefined,
): string {
  if (typeof amountMinor !== "string") return "all that is left";
  const currency = typeof said === "string" ? said : fallback;
  return currency === undefined
    ? `${amountMinor} minor units`
    : formatMajor(BigInt(amountMinor), currency);
}

function shown(value: string | number | boolean | null | undefined): string {
  return value === null || value === undefined ? "not given" : String(value);
}

function outcomeUnknown({ idempotencyKey }: CallContext, cause: unknown): DomainError {
  const key = JSON.stringify(idempotencyKey);
  return new DomainError(
    "outcome_unknown",
    `no worker answered in time for key ${key}, so the request may or may not be recorded: repeat with the same key`,
    { cause },
  );
}

function connectionError(error: unknown): DomainError | undefined {
  const options = { cause: error };
  if (error instanceof NamespaceNotFoundError) {
    return new DomainError(
      "temporal_unreachable",
      `Temporal has no namespace ${JSON.stringify(error.namespace)}`,
      options,
    );
  }
  const code = grpcCodeOf(error);
  if (code === GRPC.invalidArgument) {
    return new DomainError(
      "temporal_unreachable",
      "Temporal refused the request as invalid; are the search attributes RemitPaymentId, RemitMerchant, " +
        `RemitCurrency (Keyword) registered in the namespace? Temporal says: ${grpcDetailsOf(error)}`,
      options,
    );
  }
  if (code === GRPC.permissionDenied || code === GRPC.unauthenticated) {
    return new DomainError("temporal_unreachable", "Temporal refused our credentials", options);
  }
  return code === GRPC.unavailable
    ? new DomainError("temporal_unreachable", "Temporal does not answer", options)
    : undefined;
}

function grpcCodeOf(error: unknown): number | undefined {
  return grpcErrorOf(error)?.code;
}

function grpcDetailsOf(error: unknown): string {
  return grpcErrorOf(error)?.details ?? "nothing more";
}

function grpcErrorOf(error: unknown): { code: number; details: string } | undefined {
  const candidate = error instanceof ServiceError ? error.cause : error;
  return isGrpcServiceError(candidate) ? candidate : undefined;
}

/** Of @grpc/grpc-js, which isn't a dependency of ours. */
const GRPC = {
  invalidArgument: 3,
  notFound: 5,
  permissionDenied: 7,
  failedPrecondition: 9,
  unavailable: 14,
  unauthenticated: 16,
} as const;

/** Cancelled, terminated, failed, or gone with the namespace's retention; the books know how the payment stands. */
export function endedWithoutAnswer(error: unknown): boolean {
  return error instanceof WorkflowFailedError || error instanceof WorkflowNotFoundError;
}
