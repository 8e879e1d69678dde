import { WithStartWorkflowOperation } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import type { UpdateDefinition } from "@temporalio/common";
import { v7 as uuidV7 } from "uuid";
import { DomainError } from "../domain/errors.ts";
import { UUID_PATTERN, assertIdempotencyKey, workflowIds } from "../domain/ids.ts";
import { assertCurrency, parseAmount } from "../domain/money.ts";
import type { PartStatus, PaymentStatus, RecordedParameters } from "../domain/payment.ts";
import { assertText } from "../domain/text.ts";
import {
  WORKFLOW_TYPES,
  acceptRefundUpdate,
  cancelUpdate,
  captureEndUpdate,
  captureUpdate,
  voidUpdate,
} from "../workflows/messages.ts";
import type {
  CancelReceipt,
  KeyedRequest,
  RefundEnd,
  RefundInput,
  Spelling,
} from "../workflows/messages.ts";
import { operationFingerprint } from "../domain/fingerprint.ts";
import { traced } from "./trace-source.ts";
import type { TraceSource } from "./trace-source.ts";
import { ACCEPT_DEADLINE_MS, assertCallOptions, callUpdate } from "./update-call.ts";
import { withinTimeout } from "./wait.ts";
import { paymentWorkflowType, referenceStart, refundStart } from "./workflow-starts.ts";
import type { PaymentHandle, PaymentWorkflow, RefundWorkflow } from "./workflow-starts.ts";

/** Neither amount: what is left. */
interface PartRequest {
  readonly key: string;
  readonly amount?: string | undefined;
  readonly amountMinor?: string | undefined;
  /** Refused where it isn't the payment's. */
  readonly currency?: string | undefined;
}

export interface CaptureRequest extends PartRequest {
  /** Gives what is left after it back to the source. */
  readonly final?: boolean | undefined;
}

export interface RefundRequest extends PartRequest {
  readonly reason?: string | null | undefined;
}

/** The first decision about a capture's or refund's key; `status` as it was then. */
export interface PartAnswer {
  readonly paymentId: string;
  readonly amountMinor: string;
  readonly status: PartStatus;
  /** True where an earlier request with this key was answered already. */
  readonly replayed: boolean;
}

export interface CaptureAnswer extends PartAnswer {
  readonly captureId: string;
  readonly final: boolean;
}

export interface RefundAnswer extends PartAnswer {
  readonly refundId: string;
  readonly workflowId: string;
}

export interface VoidAnswer {
  readonly paymentId: string;
  readonly status: PaymentStatus;
  readonly replayed: boolean;
}

interface CallOptions {
  /** How long to wait for a worker before `outcome_unknown`; 10 s unless said. */
  readonly deadlineMs?: number;
  /** Give the same one to each attempt of one request, so that your own first attempt isn't a replay to you. */
  readonly requestId?: string;
}

/**
 * What may be done to a payment that was recorded; each is idempotent by its key, and takes the payment up again where its
 * workflow was lost. All throw DomainError: a refusal (`details.replayed` says whether it is an old one),
 * `outcome_unknown`, `temporal_unreachable`, or one of exit 2 before anything is sent.
 */
export interface PaymentOperations {
  /** Books all or a part of an authorization; returns when it is recorded. */
  readonly capture: (
    payment: PaymentHandle,
    request: CaptureRequest,
    options?: CallOptions,
  ) => Promise<CaptureAnswer>;
  /** Waits until the ledger has booked or refused a capture; @throws `wait_timeout` */
  readonly waitForCapture: (
    payment: PaymentHandle,
    captureId: string,
    options: { timeoutMs: number },
  ) => Promise<void>;
  /** Gives back what is not captured of an authorization. */
  readonly void: (
    payment: PaymentHandle,
    request: { key: string },
    options?: CallOptions,
  ) => Promise<VoidAnswer>;
  /** Gives money that was booked back to the payment's source; returns when it is recorded. */
  readonly refund: (
    payment: PaymentHandle,
    request: RefundRequest,
    options?: CallOptions,
  ) => Promise<RefundAnswer>;
  /**
   * Waits until the ledger has booked or refused a refund.
   * @throws `wait_timeout`; `outcome_unknown` where the key was used for something else since, and PostgreSQL alone knows
   */
  readonly waitForRefund: (
    answer: RefundAnswer,
    options: { timeoutMs: number },
  ) => Promise<RefundEnd>;
  /** Waits until the payment's run has ended; @throws `wait_timeout` */
  readonly waitForPayment: (
    payment: PaymentHandle,
    options: { timeoutMs: number },
  ) => Promise<void>;
  /** Ends a payment that isn't booked: a pending one is cancelled, an authorized one voided. A second call changes nothing. */
  readonly cancel: (payment: PaymentHandle, options?: CallOptions) => Promise<CancelReceipt>;
}

export function createPaymentOperations(
  client: Client,
  traceparent: TraceSource,
): PaymentOperations {
  return {
    async capture(handle, request, options) {
      const payment = known(handle);
      const amountMinor = amountOf(request, payment);
      const currency = currencyOf(request);
      const parameters = { amountMinor, currency, final: request.final ?? false };
      const call = keyedCall(payment, request.key, { operation: "capture", parameters, options });
      const receipt = await updateWithStart(client, payment, captureUpdate, {
        ...call,
        args: [
          {
            ...call.keyed,
            ...traced(traceparent),
            ...parameters,
            ...spelling(request, payment),
            paymentId: payment.paymentId,
          },
        ],
      });
      const { requestId, ...answer } = receipt;
      return { ...answer, replayed: requestId !== call.keyed.requestId };
    },

    async waitForCapture(handle, captureId, { timeoutMs }) {
      const payment = known(handle);
      await withinTimeout(client, { timeoutMs, what: `capture ${captureId}` }, async () => {
        await client.workflow.executeUpdateWithStart(captureEndUpdate, {
          args: [{ captureId }],
          updateId: `captureEnd:${captureId}`,
          startWorkflowOperation: takeUp(payment),
        });
      });
    },

    async void(handle, { key }, options) {
      const payment = known(handle);
      const call = keyedCall(payment, key, { operation: "void", parameters: {}, options });
      const receipt = await updateWithStart(client, payment, voidUpdate, {
        ...call,
        args: [{ ...call.keyed, ...traced(traceparent), paymentId: payment.paymentId }],
      });
      const { requestId, ...answer } = receipt;
      return { ...answer, replayed: requestId !== call.keyed.requestId };
    },

    async refund(handle, request, options) {
      const payment = known(handle);
      const reason = request.reason ?? null;
      if (reason !== null) assertText(reason, "reason");
      const amountMinor = amountOf(request, payment);
      const parameters = { amountMinor, currency: currencyOf(request), reason };
      const call = keyedCall(payment, request.key, { operation: "refund", parameters, options });
      const { paymentId } = payment;
      const input: RefundInput = {
        ...call.keyed,
        ...traced(traceparent),
        ...parameters,
        ...spelling(request, payment),
        paymentId,
        refundId: uuidV7(),
      };
      const start = refundStart(input, payment);
      const { requestId, ...answer } = await callUpdate(client, {
        ...call,
        updateId: `accept:${input.fingerprint}`,
        execute: async (updateId) =>
          await client.workflow.executeUpdateWithStart(acceptRefundUpdate, {
            args: [{ fingerprint: input.fingerprint }],
            updateId,
            startWorkflowOperation: new WithStartWorkflowOperation<RefundWorkflow>(
              WORKFLOW_TYPES.refund,
              start,
            ),
          }),
      });
      return {
        ...answer,
        replayed: requestId !== call.keyed.requestId,
        workflowId: start.workflowId,
      };
    },

    async waitForRefund({ workflowId, refundId, paymentId }, { timeoutMs }) {
      const end = await withinTimeout(
        client,
        { timeoutMs, what: `refund ${refundId}` },
        async () => await client.workflow.getHandle<RefundWorkflow>(workflowId).result(),
      );
      if (end.refundId === refundId) return end;
      throw new DomainError(
        "outcome_unknown",
        `the newest run ${workflowId} was of another request with this key: remit payment get ${paymentId} says what is refunded`,
        { details: { refundId, paymentId } },
      );
    },

    async waitForPayment(payment, { timeoutMs }) {
      const { merchant, idempotencyKey: key, paymentId } = payment;
      await withinTimeout(client, { timeoutMs, what: `payment ${paymentId}` }, async () => {
        const id = workflowIds.payment({ merchant, key });
        await client.workflow.getHandle<PaymentWorkflow>(id).result();
      });
    },

    async cancel(handle, options) {
      const payment = known(handle);
      // No key: the state itself makes a second one harmless.
      const call = keyedCall(payment, `cancel:${payment.paymentId}`, {
        operation: "cancel",
        parameters: {},
        options,
      });
      return await updateWithStart(client, payment, cancelUpdate, {
        ...call,
        updateId: `cancel:${uuidV7()}`,
        args: [{ paymentId: payment.paymentId, ...traced(traceparent) }],
      });
    },
  };
}

interface KeyedCall {
  readonly keyed: KeyedRequest;
  readonly context: Parameters<typeof callUpdate>[1]["context"];
  readonly notAfter: string;
  readonly updateId: string;
}

function keyedCall(
  { paymentId, merchant, currency }: PaymentHandle,
  idempotencyKey: string,
  {
    operation,
    parameters,
    options = {},
  }: { operation: string; parameters: RecordedParameters; options: CallOptions | undefined },
): KeyedCall {
  assertIdempotencyKey(idempotencyKey, "key");
  const { deadlineMs = ACCEPT_DEADLINE_MS, requestId = uuidV7() } = options;
  assertCallOptions({ deadlineMs, requestId });
  const compared = { paymentId, ...parameters };
  const fingerprint = operationFingerprint(operation, { ...compared, idempotencyKey });
  const notAfter = new Date(Date.now() + deadlineMs).toISOString();
  return {
    keyed: { merchant, idempotencyKey, requestId, fingerprint, notAfter },
    context: {
      requestId,
      merchant,
      idempotencyKey,
      parameters: { operation, ...compared },
      currency,
    },
    notAfter,
    updateId: `${operation}:${fingerprint}`,
  };
}

async function updateWithStart<Receipt, Args extends unknown[]>(
  client: Client,
  payment: PaymentHandle,
  update: UpdateDefinition<Receipt, Args>,
  { args, ...call }: KeyedCall & { args: Args },
): Promise<Receipt> {
  return await callUpdate(client, {
    ...call,
    execute: async (updateId) =>
      await client.workflow.executeUpdateWithStart<PaymentWorkflow, Receipt, Args>(update, {
        args,
        updateId,
        startWorkflowOperation: takeUp(payment),
      } as Parameters<
        typeof client.workflow.executeUpdateWithStart<PaymentWorkflow, Receipt, Args>
      >[1]),
  });
}

function takeUp(payment: PaymentHandle): WithStartWorkflowOperation<PaymentWorkflow> {
  return new WithStartWorkflowOperation<PaymentWorkflow>(
    paymentWorkflowType(payment.capture),
    referenceStart(payment),
  );
}

/**
 * Other systems write a UUID in capitals; here it stands in fingerprints, and runs compare it.
 * @throws DomainError `payment_not_found`: what isn't a UUID can't be the id of a payment
 */
function known(payment: PaymentHandle): PaymentHandle {
  const paymentId = String(payment.paymentId).toLowerCase();
  if (UUID_PATTERN.test(paymentId)) return { ...payment, paymentId };
  const shown = JSON.stringify(payment.paymentId);
  throw new DomainError("payment_not_found", `there is no payment ${shown}`);
}

/** Null where the caller didn't say. @throws DomainError `currency_unknown` */
function currencyOf({ currency }: PartRequest): string | null {
  if (currency === undefined) return null;
  assertCurrency(currency, "currency");
  return currency;
}

/** Neither: null, which stands for what is left. */
function amountOf(
  { amount, amountMinor, currency }: PartRequest,
  payment: PaymentHandle,
): string | null {
  if (amount === undefined && amountMinor === undefined) return null;
  const decimals = currency ?? payment.currency;
  return parseAmount({ amount, amountMinor, currency: decimals }).toString();
}

/** A handle may be put together by its caller, with a currency that isn't the payment's. */
function spelling({ amount, currency }: PartRequest, payment: PaymentHandle): Spelling {
  return amount === undefined ? {} : { readAs: currency ?? payment.currency };
}
