import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { WithStartWorkflowOperation } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { v7 as uuidV7 } from "uuid";
import { DomainError } from "../domain/errors.ts";
import { workflowIds } from "../domain/ids.ts";
import type { PaymentParameters, PaymentStatus } from "../domain/payment.ts";
import { acceptUpdate } from "../workflows/messages.ts";
import type { PaymentEnd, PaymentInput, PaymentReceipt } from "../workflows/messages.ts";
import { fingerprintOf } from "../domain/fingerprint.ts";
import { parsePaymentRequest } from "./parameters.ts";
import type { PaymentRequest } from "./parameters.ts";
import { endedWithoutAnswer, isTimeout, isUnavailable, toDomainError } from "./payment-failure.ts";
import type { CallContext } from "./payment-failure.ts";
import { createPaymentOperations } from "./payment-operations.ts";
import type { PaymentOperations } from "./payment-operations.ts";
import { recordAgain } from "./record-again.ts";
import type { IsRecorded } from "./record-again.ts";
import { traced } from "./trace-source.ts";
import type { TraceSource } from "./trace-source.ts";
import { ACCEPT_DEADLINE_MS, assertCallOptions, callUpdate } from "./update-call.ts";
import { paymentStart, paymentWorkflowType } from "./workflow-starts.ts";
import type { PaymentWorkflow } from "./workflow-starts.ts";

/** The first decision about a key, and who made it. */
export interface PaymentAnswer {
  readonly paymentId: string;
  /** The first caller's id. */
  readonly requestId: string;
  /** True where an earlier request with this key was answered already. */
  readonly replayed: boolean;
  /** As it was when the first request was answered; PostgreSQL knows the one of now. */
  readonly status: PaymentStatus;
  readonly createdAt: string;
  readonly workflowId: string;
  readonly workflowUrl: string | null;
  readonly parameters: PaymentParameters;
}

export interface PayOptions {
  /** How long to wait for a worker before `outcome_unknown`; 10 s unless said. */
  readonly deadlineMs?: number;
  /** Give the same one to each attempt of one request, so that your own first attempt isn't a replay to you. */
  readonly requestId?: string;
  /**
   * The payment's workflow ends when the payment is recorded and doesn't wait for the ledger, which books it all the same:
   * 14 Temporal events and 2 workflow tasks instead of 18 and 3. For automatic capture. Temporal then shows a completed run
   * with `RemitStatus = "recorded"`, and PostgreSQL alone says how the payment ended; `waitForEnd` costs another run.
   */
  readonly endsAtReceipt?: boolean;
}

/** Starts payments and waits for them; needs Temporal and no database. */
export interface PaymentClient extends PaymentOperations {
  /**
   * Records a payment, or answers with what was recorded under its key.
   * @throws DomainError: a refusal (`details.replayed` says whether it is an old one), `outcome_unknown`,
   * `temporal_unreachable`, or one of exit 2 before anything is sent
   */
  readonly pay: (request: PaymentRequest, options?: PayOptions) => Promise<PaymentAnswer>;
  /**
   * Waits for the end of a payment; starts its workflow again where an operator has ended that without an answer. One with
   * manual capture ends when it is captured and booked, voided or expired, which may take days.
   * @throws DomainError `wait_timeout`
   */
  readonly waitForEnd: (
    answer: PaymentAnswer,
    options: { timeoutMs: number },
  ) => Promise<PaymentEnd>;
  /** The page of a workflow in Temporal's Web UI, or null where no UI is configured. */
  readonly workflowUrl: (workflowId: string) => string | null;
}

export interface PaymentClientOptions {
  readonly client: Client;
  readonly uiUrl?: string | null;
  readonly traceparent?: TraceSource;
  /** Given by who has PostgreSQL at hand: a repeat whose payment it has forgotten is recorded again. */
  readonly isRecorded?: IsRecorded;
}

/** Makes a PaymentClient on a connected Temporal client, which stays the caller's to close. */
export function createPaymentClient({
  client,
  uiUrl,
  traceparent = () => null,
  isRecorded = async () => await Promise.resolve(true),
}: PaymentClientOptions): PaymentClient {
  const { namespace } = client.options;
  const workflowUrl = (workflowId: string): string | null =>
    workflowUrlOf(workflowId, { uiUrl: uiUrl ?? null, namespace });

  return {
    ...createPaymentOperations(client, traceparent),
    workflowUrl,

    async pay(request, options = {}) {
      const { deadlineMs = ACCEPT_DEADLINE_MS, requestId = randomUUID() } = options;
      assertCallOptions({ deadlineMs, requestId });
      const parameters = parsePaymentRequest(request);
      const input = {
        ...inputOf(parameters, { requestId, deadlineMs }),
        ...traced(traceparent),
        ...endingOf(parameters, options),
      };
      const first = await accept(client, input);
      const isReplay = first.requestId !== requestId;
      const receipt =
        isReplay && !(await isRecorded(first.paymentId))
          ? await replaceForgotten(client, { ...input, paymentId: first.paymentId }, isRecorded)
          : first;
      const workflowId = workflowIds.payment({
        merchant: parameters.merchant,
        key: parameters.idempotencyKey,
      });
      return {
        ...receipt,
        replayed: receipt.requestId !== requestId,
        workflowId,
        workflowUrl: workflowUrl(workflowId),
        parameters,
      };
    },

    async waitForEnd(answer, { timeoutMs }) {
      return await waitForEnd(client, answer, timeoutMs);
    },
  };
}

/** The page of a workflow in Temporal's Web UI; the page finds its newest run by itself. */
export function workflowUrlOf(
  workflowId: string,
  { uiUrl, namespace }: { uiUrl: string | null; namespace: string },
): string | null {
  if (uiUrl === null) return null;
  const base = uiUrl.replace(/\/+$/, "");
  return `${base}/namespaces/${encodeURIComponent(namespace)}/workflows/${encodeURIComponent(workflowId)}`;
}

async function accept(client: Client, input: PaymentInput): Promise<PaymentReceipt> {
  return await callUpdate(client, {
    context: contextOf(input),
    updateId: `accept:${input.fingerprint}`,
    notAfter: input.notAfter,
    execute: async (updateId) =>
      await client.workflow.executeUpdateWithStart(acceptUpdate, {
        args: [{ fingerprint: input.fingerprint }],
        updateId,
        startWorkflowOperation: new WithStartWorkflowOperation<PaymentWorkflow>(
          paymentWorkflowType(input.capture),
          paymentStart(input),
        ),
      }),
  });
}

/** @throws DomainError as `pay` does: meanwhile the money may have gone elsewhere */
async function replaceForgotten(
  client: Client,
  input: PaymentInput,
  isRecorded: IsRecorded,
): Promise<PaymentReceipt> {
  const { merchant, idempotencyKey: key, capture } = input;
  const waiting = (): PaymentInput => ({ ...input, notAfter: afterNow(ACCEPT_DEADLINE_MS) });
  try {
    return await recordAgain({
      handle: client.workflow.getHandle(workflowIds.payment({ merchant, key })),
      start: async () => {
        await client.workflow.start<PaymentWorkflow>(
          paymentWorkflowType(capture),
          paymentStart(waiting()),
        );
      },
      accept: async () => await accept(client, waiting()),
      isRecorded,
      timeoutMs: ACCEPT_DEADLINE_MS,
    });
  } catch (error) {
    throw toDomainError(error, contextOf(input));
  }
}

function contextOf(of: PaymentParameters & { requestId: string }): CallContext {
  const { requestId, merchant, idempotencyKey, source, destination, amountMinor } = of;
  const { currency, capture, description, expiresInSeconds } = of;
  return {
    requestId,
    merchant,
    idempotencyKey,
    parameters: {
      operation: "pay",
      source,
      destination,
      amountMinor,
      currency,
      capture,
      description,
      ...(expiresInSeconds === undefined ? {} : { expiresInSeconds }),
    },
  };
}

/** @throws DomainError `usage`: an authorization needs a run that lets it expire */
function endingOf(
  { capture }: PaymentParameters,
  { endsAtReceipt = false }: PayOptions,
): Pick<PaymentInput, "endsAtReceipt"> {
  if (!endsAtReceipt) return {};
  if (capture === "automatic") return { endsAtReceipt };
  throw new DomainError("usage", "a payment can end at its receipt with automatic capture only");
}

async function waitForEnd(
  client: Client,
  answer: PaymentAnswer,
  timeoutMs: number,
): Promise<PaymentEnd> {
  const endsAt = Date.now() + timeoutMs;
  const handle = client.workflow.getHandle<PaymentWorkflow>(answer.workflowId);
  let starts = 0;
  let mustStart = false;
  for (;;) {
    try {
      if (mustStart) await startAgain(client, answer);
      mustStart = false;
      const end = await client.withDeadline(new Date(endsAt), async () => await handle.result());
      if (end.paymentId === answer.paymentId && end.status !== "pending") return end;
      // It ended at its receipt, or was of a later request with this key, which was refused: asked again, a run says how ours ended.
      if (starts >= RUN_STARTS_MAX) throw waitTimeout(answer, timeoutMs);
      starts++;
      mustStart = true;
    } catch (error) {
      if (Date.now() >= endsAt || isTimeout(error)) throw waitTimeout(answer, timeoutMs);
      if (isUnavailable(error)) {
        await sleep(UNAVAILABLE_PAUSE_MS);
      } else if (endedWithoutAnswer(error) && starts < RUN_STARTS_MAX) {
        starts++;
        mustStart = true;
      } else {
        throw toDomainError(
          error,
          contextOf({ ...answer.parameters, requestId: answer.requestId }),
        );
      }
    }
  }
}

const UNAVAILABLE_PAUSE_MS = 500;
const RUN_STARTS_MAX = 5;

/** The same request again: the new run finds the payment by its key and takes it up, or finds its end. */
async function startAgain(client: Client, answer: PaymentAnswer): Promise<void> {
  const { parameters, requestId, paymentId } = answer;
  const input = inputOf(parameters, { requestId, deadlineMs: ACCEPT_DEADLINE_MS });
  await client.workflow.start<PaymentWorkflow>(
    paymentWorkflowType(input.capture),
    paymentStart({ ...input, paymentId }),
  );
}

function inputOf(
  parameters: PaymentParameters,
  { requestId, deadlineMs }: { requestId: string; deadlineMs: number },
): PaymentInput {
  return {
    ...parameters,
    paymentId: uuidV7(),
    requestId,
    fingerprint: fingerprintOf(parameters),
    notAfter: afterNow(deadlineMs),
  };
}

function afterNow(ms: number): string {
  return new Date(Date.now() + ms).toISOString();
}

function waitTimeout(answer: PaymentAnswer, timeoutMs: number): DomainError {
  return new DomainError(
    "wait_timeout",
    `payment ${answer.paymentId} is recorded and had no end within ${timeoutMs / 1_000} s`,
    { details: { paymentId: answer.paymentId } },
  );
}
