import type { WorkflowStartOptions } from "@temporalio/client";
import { TypedSearchAttributes } from "@temporalio/common";
import type { Workflow } from "@temporalio/common";
import { workflowIds } from "../domain/ids.ts";
import { formatMajor } from "../domain/money.ts";
import type { CaptureMode } from "../domain/payment.ts";
import { asMarkdownText } from "../domain/text.ts";
import { SEARCH_KEYS, TASK_QUEUES, WORKFLOW_TYPES } from "../workflows/messages.ts";
import type {
  PaymentEnd,
  PaymentInput,
  PaymentReference,
  RefundEnd,
  RefundInput,
} from "../workflows/messages.ts";

/** How the client starts workflows: ids, policies, and what a person reads in the Web UI. */

export type PaymentWorkflow = (input: PaymentInput | PaymentReference) => Promise<PaymentEnd>;
export type RefundWorkflow = (input: RefundInput) => Promise<RefundEnd>;

type StartOptions<Started extends Workflow> = WorkflowStartOptions<Started> & {
  workflowIdConflictPolicy: "USE_EXISTING";
};

const POLICIES = {
  workflowIdConflictPolicy: "USE_EXISTING",
  // Temporal itself answers a repeat from a closed run for as long as it keeps it; without one, a new run asks PostgreSQL.
  // The two differ after a restore of PostgreSQL alone: docs/operations.md.
  workflowIdReusePolicy: "ALLOW_DUPLICATE",
  // A worker that dies costs its callers this long.
  workflowTaskTimeout: "5s",
} as const;

/** The workflow type of a payment: automatic ones are short, manual ones live for days. */
export function paymentWorkflowType(capture: CaptureMode): string {
  return capture === "manual" ? WORKFLOW_TYPES.manualPayment : WORKFLOW_TYPES.payment;
}

export function paymentStart(input: PaymentInput): StartOptions<PaymentWorkflow> {
  const { source, destination, currency, merchant, idempotencyKey, description } = input;
  const amount = `${formatMajor(BigInt(input.amountMinor), currency)} ${currency}`;
  return {
    ...POLICIES,
    workflowId: workflowIds.payment({ merchant, key: idempotencyKey }),
    taskQueue: paymentQueue(input.capture),
    args: [input],
    typedSearchAttributes: new TypedSearchAttributes([
      { key: SEARCH_KEYS.paymentId, value: input.paymentId },
      { key: SEARCH_KEYS.merchant, value: merchant },
      { key: SEARCH_KEYS.currency, value: currency },
      // A completed run means a settled payment unless it says otherwise.
      ...(input.endsAtReceipt === true ? [{ key: SEARCH_KEYS.status, value: "recorded" }] : []),
    ]),
    staticSummary: `${amount} ${source} → ${destination}`,
    staticDetails: [
      `**${amount}** from \`${source}\` to \`${destination}\`, captured ${input.capture === "manual" ? "later" : "at once"}`,
      `key ${asMarkdownText(idempotencyKey)} of merchant \`${merchant}\``,
      ...(description === null ? [] : [asMarkdownText(description)]),
    ].join("\n\n"),
  };
}

/** A payment as an operation needs to know it: what its answer, or `remit payment get`, says. */
export interface PaymentHandle {
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly currency: string;
  readonly capture: CaptureMode;
}

/** Takes a recorded payment up again where its run has closed or was lost; meets the running one otherwise. */
export function referenceStart(payment: PaymentHandle): StartOptions<PaymentWorkflow> {
  const { paymentId, merchant, idempotencyKey, currency, capture } = payment;
  return {
    ...POLICIES,
    workflowId: workflowIds.payment({ merchant, key: idempotencyKey }),
    taskQueue: paymentQueue(capture),
    args: [{ paymentId }],
    typedSearchAttributes: new TypedSearchAttributes([
      { key: SEARCH_KEYS.paymentId, value: paymentId },
      { key: SEARCH_KEYS.merchant, value: merchant },
      { key: SEARCH_KEYS.currency, value: currency },
    ]),
    staticSummary: `payment ${paymentId} (taken up again)`,
  };
}

export function refundStart(
  input: RefundInput,
  { currency }: PaymentHandle,
): StartOptions<RefundWorkflow> {
  const { merchant, idempotencyKey, paymentId, amountMinor, reason } = input;
  const amount =
    amountMinor === null
      ? "what is left"
      : `${formatMajor(BigInt(amountMinor), currency)} ${currency}`;
  return {
    ...POLICIES,
    workflowId: workflowIds.refund({ merchant, key: idempotencyKey }),
    taskQueue: TASK_QUEUES.payments,
    args: [input],
    typedSearchAttributes: new TypedSearchAttributes([
      { key: SEARCH_KEYS.paymentId, value: paymentId },
      { key: SEARCH_KEYS.merchant, value: merchant },
      { key: SEARCH_KEYS.currency, value: currency },
    ]),
    staticSummary: `refund of ${amount}, payment ${paymentId}`,
    ...(reason === null ? {} : { staticDetails: asMarkdownText(reason) }),
  };
}

function paymentQueue(capture: CaptureMode): string {
  return capture === "manual" ? TASK_QUEUES.manualPayments : TASK_QUEUES.payments;
}
