import { DomainError } from "../domain/errors.ts";

/** AWS's names for "who are you" and "you may not", of SNS, SQS, IAM and the credential providers. */
const UNKNOWN_CALLER =
  /^(InvalidClientTokenId|UnrecognizedClient|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidSignature|ExpiredToken|TokenRefreshRequired|InvalidSecurity|MissingAuthenticationToken)/;
const DENIED = /^(AccessDenied|AuthorizationError|UnauthorizedOperation|KMSAccessDenied)/;
const MESSAGE_CHARACTERS_MAX = 300;

/** Says in Remit's words, with what helps, why a call to SNS or SQS failed; what isn't known passes as it is. */
export function awsError(error: unknown, { endpointUrl }: { endpointUrl: string | null }): unknown {
  if (!(error instanceof Error) || error instanceof DomainError) return error;
  const { name } = error;
  // Of AWS's own text: it names the action and the resource, and no secret.
  const message = error.message.slice(0, MESSAGE_CHARACTERS_MAX);
  if (name === "CredentialsProviderError") {
    return refused(
      error,
      "expected credentials of AWS, found none: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
        "or run it under a role",
    );
  }
  if (UNKNOWN_CALLER.test(name)) {
    return refused(
      error,
      `AWS does not accept the credentials (${name}): sign in again, or name another AWS_PROFILE`,
    );
  }
  if (DENIED.test(name)) {
    return refused(
      error,
      `AWS denies it (${message}): grant what docs/deploy.md lists for the setup`,
    );
  }
  if (isUnanswered(error)) {
    return new DomainError(
      "broker_unreachable",
      `expected SNS and SQS at ${endpointUrl ?? "AWS"}, found nothing that answers (${name})`,
      { cause: error },
    );
  }
  return new DomainError("internal", `${name}: ${message}`, { cause: error });
}

function refused(cause: Error, message: string): DomainError {
  return new DomainError("usage", message, { cause });
}

/** No answer, or one of the server's own faults: the SDK marks those that are worth another try. */
function isUnanswered(error: Error & { code?: unknown; $fault?: unknown }): boolean {
  return (
    /^(TimeoutError|NetworkingError|AggregateError)$/.test(error.name) ||
    (typeof error.code === "string" && /^(E[A-Z_]+)$/.test(error.code)) ||
    error.$fault === "server"
  );
}
