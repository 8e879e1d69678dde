import { ServiceError, WorkflowUpdateFailedError } from "@temporalio/client";
import { WorkflowUpdateRPCTimeoutOrCancelledError } from "@temporalio/client";
import { ApplicationFailure } from "@temporalio/common";
import { parsePaymentRequest } from "../../src/client/parameters.ts";
import { toDomainError } from "../../src/client/payment-failure.ts";
import { DomainError } from "../../src/domain/errors.ts";
import type { RefusalDetails } from "../../src/workflows/messages.ts";

const PARAMETERS = parsePaymentRequest({
  key: "order-1",
  from: "alice",
  to: "shop",
  amount: "13",
  currency: "EUR",
});
const CONTEXT = {
  requestId: "mine",
  merchant: "default",
  idempotencyKey: "order-1",
  parameters: { operation: "pay", ...PARAMETERS },
};

function domainErrorOf(error: unknown): DomainError {
  const mapped = toDomainError(error, CONTEXT);
  if (mapped instanceof DomainError) return mapped;
  throw new Error("it was not mapped");
}

function refusal(details: RefusalDetails): WorkflowUpdateFailedError {
  const { code: type, message } = details;
  const cause = ApplicationFailure.create({ type, message, details: [details] });
  return new WorkflowUpdateFailedError("Workflow Update failed", cause);
}

function grpcError(code: number, details: string): Error {
  return Object.assign(new Error(details), { code, details, metadata: {} });
}

describe("a refusal by the workflow", () => {
  test.each([
    ["mine", false],
    ["somebody else's", true],
  ])("of a request that was %s is replayed: %p", (requestId, replayed) => {
    const error = refusal({ code: "insufficient_funds", message: "too little", requestId });
    expect(domainErrorOf(error)).toMatchObject({
      code: "insufficient_funds",
      message: "too little",
      details: { replayed },
    });
  });

  test("of a key used before names each parameter that differs, and no other", () => {
    const recorded = { ...PARAMETERS, amountMinor: "1250", destination: "bob" };
    const error = refusal({
      code: "idempotency_key_reused",
      message: "used",
      requestId: "theirs",
      recorded,
    });
    expect(domainErrorOf(error).message).toBe(
      'key "order-1" of merchant default was used before: to is bob in the first request, shop in this one; ' +
        "amount is 12.50 in the first request, 13.00 in this one",
    );
  });

  test("with a type that isn't in the list leaves the outcome open", () => {
    const cause = ApplicationFailure.create({ type: "TypeError", message: "secret" });
    const mapped = domainErrorOf(new WorkflowUpdateFailedError("failed", cause));
    expect(mapped.code).toBe("outcome_unknown");
    expect(mapped.message).not.toContain("secret");
  });
});

describe("a call without an answer", () => {
  test.each([
    ["the deadline has passed", new WorkflowUpdateRPCTimeoutOrCancelledError("timeout")],
    ["the run closed under it", grpcError(5, "workflow update was aborted by closing workflow")],
  ])("is outcome_unknown where %s, and says to repeat", (_what, error) => {
    const mapped = domainErrorOf(error);
    expect(mapped.code).toBe("outcome_unknown");
    expect(mapped.message).toContain("repeat with the same key");
  });

  test.each([
    [14, "connection refused", "Temporal does not answer"],
    [16, "bad key", "Temporal refused our credentials"],
    [3, "Namespace default has no mapping defined for search attribute", "search attributes"],
  ])("is temporal_unreachable by gRPC code %d", (code, details, expected) => {
    const cause = grpcError(code, details);
    const mapped = domainErrorOf(new ServiceError("Update-With-Start failed", { cause }));
    expect(mapped.code).toBe("temporal_unreachable");
    expect(mapped.message).toContain(expected);
  });

  test("stays what it is where nobody foresaw it", () => {
    const error = new TypeError("x");
    expect(toDomainError(error, CONTEXT)).toBe(error);
  });
});
