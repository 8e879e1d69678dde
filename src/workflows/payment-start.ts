import { CancellationScope, setCurrentDetails, upsertSearchAttributes } from "@temporalio/workflow";
import type { RecordPaymentResult } from "../activities/record-payment.ts";
import type { TakenUpPayment } from "../activities/take-up-payment.ts";
import { asMarkdownText } from "../domain/text.ts";
import type { Acceptance, FirstRequest } from "./acceptance.ts";
import { databaseStep } from "./database-step.ts";
import { SEARCH_KEYS } from "./messages.ts";
import type { PaymentEnd, PaymentInput, PaymentReceipt, PaymentReference } from "./messages.ts";

const recordPayment = databaseStep<PaymentInput, RecordPaymentResult>(
  "recordPayment",
  "key + payment + hold + outbox row, in one commit",
);
const takeUpPayment = databaseStep<PaymentReference, TakenUpPayment | null>(
  "takeUpPayment",
  "the payment as it was recorded",
);

/** A receipt where there is a payment to follow, else how the run ends. */
export type PaymentStart =
  { readonly receipt: PaymentReceipt } | { readonly receipt: null; readonly end: PaymentEnd };

/** Records the payment, or takes up one that is recorded: the first step of either payment workflow. */
export async function startPayment(
  input: PaymentInput | PaymentReference,
  acceptance: Acceptance<PaymentReceipt>,
): Promise<PaymentStart> {
  // A cancel that comes in between is answered by the payment that was recorded, not by leaving it behind.
  return await CancellationScope.nonCancellable(async () =>
    "fingerprint" in input
      ? await record(input, acceptance)
      : await takeUp(input.paymentId, acceptance),
  );
}

async function record(
  input: PaymentInput,
  acceptance: Acceptance<PaymentReceipt>,
): Promise<PaymentStart> {
  const result = await recordPayment(input);
  const receipt = acceptance.decide(result, firstRequest(input));
  if (receipt !== null) {
    if (receipt.paymentId !== input.paymentId) {
      upsertSearchAttributes([{ key: SEARCH_KEYS.paymentId, value: receipt.paymentId }]);
    }
    return { receipt };
  }
  if (result.outcome === "expired") {
    setCurrentDetails("Nobody waited for this request any more, so nothing was recorded.");
    return refusedStart("outcome_unknown");
  }
  if ("receipt" in result) throw new Error("a receipt is no refusal");
  setCurrentDetails(
    result.outcome === "contradictory"
      ? "This request changed nothing: its key was used before, and what was decided about that first request stands. See the earlier run of this workflow id."
      : `**Refused**: ${asMarkdownText(result.message)} (\`${result.code}\`). No money moved.`,
  );
  upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: "refused" }]);
  return refusedStart(result.code);
}

async function takeUp(
  paymentId: string,
  acceptance: Acceptance<PaymentReceipt>,
): Promise<PaymentStart> {
  const taken = await takeUpPayment({ paymentId });
  if (taken === null) {
    const code = "payment_not_found";
    const message = `there is no payment ${paymentId}`;
    const first = { fingerprint: "", contradiction: { code, message, requestId: "" } as const };
    acceptance.decide({ outcome: "malformed", ...first.contradiction }, first);
    setCurrentDetails(`There is no payment \`${paymentId}\`.`);
    return refusedStart(code);
  }
  const { recorded, receipt } = taken;
  acceptance.decide({ outcome: "repeated", receipt }, firstRequest(recorded));
  return { receipt };
}

function refusedStart(failureCode: string): PaymentStart {
  return { receipt: null, end: { paymentId: null, status: "refused", failureCode } };
}

function firstRequest(input: Omit<PaymentInput, "notAfter">): FirstRequest {
  const { fingerprint, requestId, merchant, idempotencyKey } = input;
  return {
    fingerprint,
    contradiction: {
      code: "idempotency_key_reused",
      message: `key ${idempotencyKey} of merchant ${merchant} was used with other parameters`,
      requestId,
      recorded: {
        operation: "pay",
        merchant,
        idempotencyKey,
        source: input.source,
        destination: input.destination,
        amountMinor: input.amountMinor,
        currency: input.currency,
        capture: input.capture,
        description: input.description,
        ...(input.expiresInSeconds === undefined
          ? {}
          : { expiresInSeconds: input.expiresInSeconds }),
      },
    },
  };
}
