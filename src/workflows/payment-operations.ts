import {
  CancellationScope,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { CancelledPayment } from "../activities/cancel-payment.ts";
import { refuseCancel } from "../domain/operation-decisions.ts";
import { PAYMENT_STATUSES } from "../domain/payment.ts";
import { asksWith, messageIdOf, refused } from "./acceptance.ts";
import type { Acceptance } from "./acceptance.ts";
import { remoteStep } from "./database-step.ts";
import {
  SEARCH_KEYS,
  cancelUpdate,
  captureUpdate,
  ledgerDecisionSignal,
  overdueUpdate,
  voidUpdate,
} from "./messages.ts";
import type {
  CancelPaymentInput,
  CapturePaymentInput,
  CaptureReceipt,
  LedgerDecision,
  PaymentReceipt,
  PaymentReference,
  PaymentStanding,
  RecordResult,
  VoidPaymentInput,
  VoidReceipt,
} from "./messages.ts";

const capturePayment = remoteStep<CapturePaymentInput, RecordResult<CaptureReceipt>>(
  "capturePayment",
  "key + capture + outbox row, in one commit",
);
const voidPayment = remoteStep<VoidPaymentInput, RecordResult<VoidReceipt>>(
  "voidPayment",
  "key + release of the hold + outbox row, in one commit",
);
/** Ends the payment unless it is booked. */
export const cancelPayment = remoteStep<CancelPaymentInput, CancelledPayment | null>(
  "cancelPayment",
  "release the hold and end the payment, unless it is booked",
);
export const readPayment = remoteStep<PaymentReference, PaymentStanding | null>(
  "readPayment",
  "how the payment stands in PostgreSQL",
);

/** Told to the main function: how the payment stands after a handler, or what the ledger has hinted. */
export interface PaymentNews {
  readonly onStanding: (standing: PaymentStanding) => void;
  readonly onDecision: (decision: LedgerDecision) => void;
  /** A capture that this run recorded, and the message that the ledger will decide. */
  readonly onCapture?: (captureId: string, messageId: string) => void;
}

/**
 * Sets the handlers of `capture`, `void`, `cancel` and of the ledger's hint. Each handler is one transaction, in which
 * PostgreSQL decides: however they race with each other, with the expiry or the ledger, one comes first and the others see it.
 */
export function handleOperations(
  acceptance: Acceptance<PaymentReceipt>,
  { onStanding, onDecision, onCapture }: PaymentNews,
): void {
  setHandler(
    ledgerDecisionSignal,
    (news) => {
      if (isDecision(news)) onDecision(news);
    },
    {
      description: "The ledger has booked or refused; a hint, PostgreSQL holds the decision",
    },
  );
  setHandler(
    overdueUpdate,
    () => {
      setCurrentDetails(
        "**Overdue**: it should be settled by now. `remit payment explain` says what it waits for.",
      );
      upsertSearchAttributes([{ key: SEARCH_KEYS.status, value: "overdue" }]);
      return null;
    },
    { description: "Marks the payment as overdue, to be found by RemitStatus" },
  );
  setHandler(
    captureUpdate,
    async (request) => {
      await own(acceptance, request);
      const result = await uncancelled(capturePayment, request);
      const receipt = receiptOf(result);
      const messageId = messageIdOf(result);
      if (messageId !== null) onCapture?.(receipt.captureId, messageId);
      onStanding({ status: receipt.final ? "captured" : "authorized", failureCode: null });
      return receipt;
    },
    { description: "Book all or a part of the authorization", validator: asksWith("paymentId") },
  );
  setHandler(
    voidUpdate,
    async (request) => {
      await own(acceptance, request);
      const receipt = receiptOf(await uncancelled(voidPayment, request));
      onStanding({ status: receipt.status, failureCode: null });
      return receipt;
    },
    {
      description: "Give back what is not captured of the authorization",
      validator: asksWith("paymentId"),
    },
  );
  setHandler(
    cancelUpdate,
    async (request) => {
      const { paymentId } = await own(acceptance, request);
      const standing = await uncancelled(cancelPayment, { ...request, paymentId });
      const status = standing?.status ?? "failed";
      const changed = standing?.changed === true;
      const refusal = changed ? null : refuseCancel({ paymentId, status });
      // Without a key there is no first caller whose answer this would repeat.
      if (refusal !== null) throw refused({ ...refusal, requestId: "" });
      onStanding({ status, failureCode: null });
      return { paymentId, status, changed };
    },
    {
      description: "End the payment unless it is booked; an authorization is voided",
      validator: asksWith("paymentId"),
    },
  );
}

/** A cancelled run goes on until its captures are booked, and answers who asks in the meantime. */
async function uncancelled<Input, Output>(
  step: (input: Input) => Promise<Output>,
  input: Input,
): Promise<Output> {
  return await CancellationScope.nonCancellable(async () => await step(input));
}

/** The receipt of this run's payment; @throws where the request means another one, which this run doesn't touch */
async function own(
  acceptance: Acceptance<PaymentReceipt>,
  { paymentId }: PaymentReference,
): Promise<PaymentReceipt> {
  const receipt = await acceptance.receipt();
  if (receipt.paymentId === paymentId) return receipt;
  const message = `${workflowInfo().workflowId} is not of payment ${paymentId}`;
  throw refused({ code: "payment_not_found", message, requestId: "" });
}

function receiptOf<Receipt>(result: RecordResult<Receipt>): Receipt {
  if ("receipt" in result) return result.receipt;
  if (result.outcome !== "expired") throw refused(result);
  const message = "nobody waited for this request any more, so nothing was recorded";
  throw refused({ code: "outcome_unknown", message, requestId: "" });
}

/** A signal can be sent by hand: what isn't a decision is no hint. */
function isDecision(news: unknown): news is LedgerDecision {
  if (typeof news !== "object" || news === null) return false;
  const { status } = news as Partial<LedgerDecision>;
  return PAYMENT_STATUSES.some((known) => known === status);
}
