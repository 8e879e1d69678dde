import {
  ApplicationFailure,
  CancellationScope,
  condition,
  setHandler,
  workflowInfo,
} from "@temporalio/workflow";
import type { UpdateDefinition } from "@temporalio/common";
import type { AcceptArguments, RecordResult, RefusalDetails } from "./messages.ts";

/** The first request of a run as its `accept` compares others with it. */
export interface FirstRequest {
  readonly fingerprint: string;
  /** What a request with another fingerprint is told. */
  readonly contradiction: RefusalDetails;
}

/** What this run has decided about its key. */
export interface Acceptance<Receipt> {
  /** The receipt, or null where the request was refused; wakes all who wait for it. */
  readonly decide: (result: RecordResult<Receipt>, request: FirstRequest) => Receipt | null;
  /** Resolves with the receipt once it is there; throws the refusal. */
  readonly receipt: () => Promise<Receipt>;
}

/**
 * Sets the handler of `accept`, which compares the fingerprint and waits for the receipt. It never records: an update that
 * no worker has accepted lives in the server's memory alone, so the main function does that.
 */
export function createAcceptance<Receipt>(
  update: UpdateDefinition<Receipt, [AcceptArguments]>,
): Acceptance<Receipt> {
  let receipt: Receipt | undefined;
  let refusal: RefusalDetails | undefined;
  let request: FirstRequest | undefined;
  let ownsKey = false;

  const decided = async (): Promise<void> => {
    // A cancel of the run is no answer to who asks what was decided.
    await CancellationScope.nonCancellable(
      async () => await condition(() => receipt !== undefined || refusal !== undefined),
    );
  };
  const answer = (): Receipt => {
    if (receipt === undefined) throw refused(refusal);
    return receipt;
  };
  setHandler(
    update,
    async ({ fingerprint }) => {
      await decided();
      if (fingerprint !== request?.fingerprint) {
        // Only a run whose own request stands behind the key may call another one contradictory.
        throw refused(ownsKey ? request?.contradiction : askAgain(request?.contradiction));
      }
      return answer();
    },
    {
      description: "Answers with the receipt of the first request that used this key",
      validator: asksWith("fingerprint"),
    },
  );
  return {
    decide(result, first) {
      request = first;
      // Its update stays unanswered: a stored answer would meet every later repeat of this key, a closed run does not.
      if (result.outcome === "expired") return null;
      ownsKey = result.outcome === "refused" || "receipt" in result;
      if ("receipt" in result) receipt = result.receipt;
      else refusal = result;
      return receipt ?? null;
    },
    async receipt() {
      await decided();
      return answer();
    },
  };
}

/** The message that the ledger will decide; null where this call didn't record it. */
export function messageIdOf(result: RecordResult<unknown>): string | null {
  return "receipt" in result ? (result.messageId ?? null) : null;
}

/** The failure of an update; the client reads its type and details. */
export function refused(details: RefusalDetails | undefined): ApplicationFailure {
  return ApplicationFailure.create({
    type: details?.code ?? "internal",
    message: details?.message ?? `workflow ${workflowInfo().workflowId} has no answer`,
    nonRetryable: true,
    details: [details],
  });
}

/**
 * Refuses an update that names none of what its handler needs, before it is accepted: sent by hand without an argument, it
 * would fail the workflow's task again and again.
 */
export function asksWith(field: string): (request: unknown) => void {
  return (request) => {
    const value = (request as Record<string, unknown> | null | undefined)?.[field];
    if (typeof value !== "string") {
      throw refused({ code: "usage", message: `expected an object with ${field}`, requestId: "" });
    }
  };
}

function askAgain(contradiction: RefusalDetails | undefined): RefusalDetails | undefined {
  if (contradiction === undefined) return undefined;
  const { requestId } = contradiction;
  const message = "another request with this key was just refused: ask again";
  return { code: "outcome_unknown", message, requestId };
}
