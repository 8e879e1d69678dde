import {
  CancellationScope,
  setCurrentDetails,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { RecordPaymentResult } from "../activities/record-payment.ts";
import type { TakenUpPayment } from "../activities/take-up-payment.ts";
import type { ErrorCode } from "../domain/errors.ts";
import { workflowIds } from "../domain/ids.ts";
import type { CaptureMode } from "../domain/payment.ts";
import { asMarkdownText } from "../domain/text.ts";
import { messageIdOf } from "./acceptance.ts";
import type { Acceptance, FirstRequest } from "./acceptance.ts";
import { databaseStep } from "./database-step.ts";
import { SEARCH_KEYS, WORKFLOW_TYPES } from "./messages.ts";
import type { PaymentEnd, PaymentInput, PaymentReceipt, PaymentReference } from "./messages.ts";

const recordPayment = databaseStep<PaymentInput, RecordPaymentResult>(
  "recordPayment",
  "key + payment + hold + outbox row, in one commit",
);
const takeUpPayment = databaseStep<PaymentReference, TakenUpPayment | null>(
  "takeUpPayment",
  "the payment as it was recorded",
);

export interface StartedPayment {
  readonly receipt: PaymentReceipt;
  /** The message that the ledger will decide; null where this run didn't record it. */
  readonly messageId: string | null;
}

/** A receipt where there is a payment to follow, else how the run ends. */
export type PaymentStart = StartedPayment | { readonly receipt: null; readonly end: PaymentEnd };

/** Records the payment, or takes up one that is recorded: the first step of either payment workflow. */
export async function startPayment(
  input: PaymentInput | PaymentReference,
  acceptance: Acceptance<PaymentReceipt>,
): Promise<PaymentStart> {
  if (!isAsked(input)) {
    const message = "expected a request to pay, or the id of a payment";
    return refuseStranger(acceptance, { code: "usage", message });
  }
  // A cancel that comes in between is answered by the payment that was recorded, not by leaving it behind.
  return await CancellationScope.nonCancellable(async () =>
    "fingerprint" in input
      ? await record(input, acceptance)
      : await takeUp(input.paymentId, acceptance),
  );
}

/** Started by hand without an argument a run would fail its task again and again, and keep its id from whom it belongs to. */
function isAsked(input: unknown): input is PaymentInput | PaymentReference {
  const { paymentId } = (input ?? {}) as { paymentId?: unknown };
  return typeof paymentId === "string";
}

async function record(
  input: PaymentInput,
  acceptance: Acceptance<PaymentReceipt>,
): Promise<PaymentStart> {
  const strange = whyNotThisRuns(input);
  if (strange !== null) return refuseStranger(acceptance, strange);
  const result = await recordPayment(input);
  const receipt = acceptance.decide(result, firstRequest(input));
  if (receipt !== null) {
    if (receipt.paymentId !== input.paymentId) {
      upsertSearchAttributes([{ key: SEARCH_KEYS.paymentId, value: receipt.paymentId }]);
    }
    return { receipt, messageId: messageIdOf(result) };
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
    const message = `there is no payment ${paymentId}`;
    return refuseStranger(acceptance, { code: "payment_not_found", message });
  }
  const strange = whyNotThisRuns(taken.recorded);
  if (strange !== null) return refuseStranger(acceptance, strange);
  const { recorded, receipt } = taken;
  acceptance.decide({ outcome: "repeated", receipt }, firstRequest(recorded));
  return { receipt, messageId: null };
}

interface Strange {
  readonly code: ErrorCode;
  readonly message: string;
}

/**
 * A caller names workflow, payment and kind of capture independently, by mistake or on purpose: a run is for the payment
 * of its own id and for its own kind, or another merchant's payment could be reached, and one that expires be followed by
 * a run that sets no timer.
 */
function whyNotThisRuns(payment: {
  paymentId: string;
  merchant: string;
  idempotencyKey: string;
  capture: CaptureMode;
}): Strange | null {
  const { workflowId, workflowType } = workflowInfo();
  const { paymentId, merchant, idempotencyKey: key, capture } = payment;
  // An array of one text is spelled as that text.
  const isSpelled = typeof merchant === "string" && typeof key === "string";
  if (!isSpelled || workflowIds.payment({ merchant, key }) !== workflowId) {
    return { code: "payment_not_found", message: `${workflowId} is not of payment ${paymentId}` };
  }
  const isManual = workflowType === WORKFLOW_TYPES.manualPayment;
  if ((capture === "manual") === isManual) return null;
  return { code: "usage", message: `payment ${paymentId} has capture ${capture}: say so` };
}

function refuseStranger(
  acceptance: Acceptance<PaymentReceipt>,
  { code, message }: Strange,
): PaymentStart {
  const contradiction = { code, message, requestId: "" };
  acceptance.decide({ outcome: "malformed", ...contradiction }, { fingerprint: "", contradiction });
  setCurrentDetails(`Not for this run: ${asMarkdownText(message)}. Nothing was changed.`);
  return refusedStart(code);
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
