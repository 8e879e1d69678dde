import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  WithStartWorkflowOperation,
  WorkflowFailedError,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
} from "@temporalio/client";
import type { Client, WorkflowStartOptions } from "@temporalio/client";
import { TypedSearchAttributes } from "@temporalio/common";
import { v7 as uuidV7 } from "uuid";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { workflowIds } from "../domain/ids.ts";
import { formatMajor } from "../domain/money.ts";
import type { PaymentParameters, PaymentStatus } from "../domain/payment.ts";
import { acceptUpdate, SEARCH_KEYS, TASK_QUEUES, WORKFLOW_TYPES } from "../workflows/messages.ts";
import type { PaymentEnd, PaymentInput, PaymentReceipt } from "../workflows/messages.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { parsePaymentRequest } from "./parameters.ts";
import type { PaymentRequest } from "./parameters.ts";
import {
  isNotReady,
  isRunGone,
  isTimeout,
  isUnavailable,
  toDomainError,
} from "./payment-failure.ts";
import type { CallContext } from "./payment-failure.ts";

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
}

/** Starts payments and waits for them; needs Temporal and no database. */
export interface PaymentClient {
  /**
   * Records a payment, or answers with what was recorded under its key.
   * @throws DomainError: a refusal (`details.replayed` says whether it is an old one), `outcome_unknown`,
   * `temporal_unreachable`, or one of exit 2 before anything is sent
   */
  readonly pay: (request: PaymentRequest, options?: PayOptions) => Promise<PaymentAnswer>;
  /**
   * Waits for the end of a payment; starts its workflow again where an operator has ended that without an answer.
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
}

/** Makes a PaymentClient on a connected Temporal client, which stays the caller's to close. */
export function createPaymentClient({ client, uiUrl }: PaymentClientOptions): PaymentClient {
  const { namespace } = client.options;
  const workflowUrl = (workflowId: string): string | null =>
    workflowUrlOf(workflowId, { uiUrl: uiUrl ?? null, namespace });

  return {
    workflowUrl,

    async pay(request, { deadlineMs = ACCEPT_DEADLINE_MS, requestId = randomUUID() } = {}) {
      const parameters = parsePaymentRequest(request);
      const input = inputOf(parameters, { requestId, deadlineMs });
      const receipt = await accept(client, input);
      const workflowId = workflowIdOf(parameters);
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

/** A worker that answers takes milliseconds; ten seconds outlast the kill -9 of one (5 s task timeout). */
export const ACCEPT_DEADLINE_MS = 10_000;

async function accept(client: Client, input: PaymentInput): Promise<PaymentReceipt> {
  const context: CallContext = { requestId: input.requestId, parameters: input };
  const deadline = new Date(input.notAfter);
  // The same for all callers of one request: fifty in parallel are one execution, and a repeat needs no worker.
  let updateId = `accept:${input.fingerprint}`;
  for (let attempt = 1; ; attempt++) {
    try {
      return await client.withDeadline(
        deadline,
        async () => await executeAccept(client, input, updateId),
      );
    } catch (error) {
      const failure = toDomainError(error, context);
      if (isNotReady(error) && Date.now() < deadline.getTime() - NOT_READY_PAUSE_MS) {
        await sleep(NOT_READY_PAUSE_MS);
        continue;
      }
      if (!canRepeat({ error, failure, attempt })) throw failure;
      // Temporal keeps an update's failure under its id: asked again by that id it would repeat it for ever.
      if (!isRunGone(error)) updateId = `accept:${input.fingerprint}:${randomUUID()}`;
      // The run that answered so is about to close.
      await sleep(NOT_READY_PAUSE_MS);
    }
  }
}

/**
 * A run that closed under the call, or gave up by its own `notAfter` or a dependency that was away, has decided nothing:
 * ask once more. A timeout is the caller's deadline itself.
 */
function canRepeat(last: { error: unknown; failure: unknown; attempt: number }): boolean {
  if (last.attempt >= ACCEPT_ATTEMPTS_MAX) return false;
  if (!isRunGone(last.error) && !(last.error instanceof WorkflowUpdateFailedError)) return false;
  return last.failure instanceof DomainError && ERROR_CODES[last.failure.code].retryable;
}

const ACCEPT_ATTEMPTS_MAX = 4;
const NOT_READY_PAUSE_MS = 250;

async function executeAccept(
  client: Client,
  input: PaymentInput,
  updateId: string,
): Promise<PaymentReceipt> {
  const startWorkflowOperation = new WithStartWorkflowOperation<PaymentWorkflow>(
    WORKFLOW_TYPES.payment,
    startOptions(input),
  );
  return await client.workflow.executeUpdateWithStart(acceptUpdate, {
    args: [{ fingerprint: input.fingerprint }],
    updateId,
    startWorkflowOperation,
  });
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
      return await client.withDeadline(new Date(endsAt), async () => await handle.result());
    } catch (error) {
      if (Date.now() >= endsAt || isTimeout(error)) throw waitTimeout(answer, timeoutMs);
      if (isUnavailable(error)) {
        await sleep(UNAVAILABLE_PAUSE_MS);
      } else if (endedWithoutAnswer(error) && starts < RUN_STARTS_MAX) {
        starts++;
        mustStart = true;
      } else {
        throw toDomainError(error, { requestId: answer.requestId, parameters: answer.parameters });
      }
    }
  }
}

const UNAVAILABLE_PAUSE_MS = 500;
const RUN_STARTS_MAX = 1;

/** Cancelled, terminated, failed, or gone with the namespace's retention; the books know how the payment stands. */
function endedWithoutAnswer(error: unknown): boolean {
  return error instanceof WorkflowFailedError || error instanceof WorkflowNotFoundError;
}

/** The same request again: the new run finds the payment by its key and takes it up, or finds its end. */
async function startAgain(client: Client, answer: PaymentAnswer): Promise<void> {
  const { parameters, requestId, paymentId } = answer;
  const input = inputOf(parameters, { requestId, deadlineMs: ACCEPT_DEADLINE_MS });
  await client.workflow.start<PaymentWorkflow>(
    WORKFLOW_TYPES.payment,
    startOptions({ ...input, paymentId }),
  );
}

type PaymentWorkflow = (input: PaymentInput) => Promise<PaymentEnd>;

function inputOf(
  parameters: PaymentParameters,
  { requestId, deadlineMs }: { requestId: string; deadlineMs: number },
): PaymentInput {
  return {
    ...parameters,
    paymentId: uuidV7(),
    requestId,
    fingerprint: fingerprintOf(parameters),
    notAfter: new Date(Date.now() + deadlineMs).toISOString(),
  };
}

function startOptions(
  input: PaymentInput,
): WorkflowStartOptions<PaymentWorkflow> & { workflowIdConflictPolicy: "USE_EXISTING" } {
  const { source, destination, currency, merchant, idempotencyKey, description } = input;
  const amount = `${formatMajor(BigInt(input.amountMinor), currency)} ${currency}`;
  return {
    workflowId: workflowIdOf(input),
    taskQueue: TASK_QUEUES.payments,
    args: [input],
    workflowIdConflictPolicy: "USE_EXISTING",
    // After a run has closed, PostgreSQL decides about its key, in a new run; Temporal's retention then never matters.
    workflowIdReusePolicy: "ALLOW_DUPLICATE",
    // A worker that dies costs its callers this long.
    workflowTaskTimeout: "5s",
    typedSearchAttributes: new TypedSearchAttributes([
      { key: SEARCH_KEYS.paymentId, value: input.paymentId },
      { key: SEARCH_KEYS.merchant, value: merchant },
      { key: SEARCH_KEYS.currency, value: currency },
    ]),
    staticSummary: `${amount} ${source} → ${destination}`,
    staticDetails: [
      `**${amount}** from \`${source}\` to \`${destination}\`, capture ${input.capture}`,
      `key \`${idempotencyKey}\` of merchant \`${merchant}\``,
      ...(description === null ? [] : [description]),
    ].join("\n\n"),
  };
}

function workflowIdOf({ merchant, idempotencyKey }: PaymentParameters): string {
  return workflowIds.payment({ merchant, key: idempotencyKey });
}

function waitTimeout(answer: PaymentAnswer, timeoutMs: number): DomainError {
  return new DomainError(
    "wait_timeout",
    `payment ${answer.paymentId} is recorded and had no end within ${timeoutMs / 1_000} s`,
    { details: { paymentId: answer.paymentId } },
  );
}
