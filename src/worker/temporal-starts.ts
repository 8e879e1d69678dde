import { WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from "@temporalio/client";
import type { Client, WorkflowExecutionDescription } from "@temporalio/client";
import type { ListRuns, RunsPage } from "../activities/supervise.ts";
import type { Key, RecordedPayment, RecordedRefund } from "../database/supervision-queries.ts";
import { keyOfWorkflowId, workflowIds } from "../domain/ids.ts";
import type { IncomingMessage } from "../messaging/envelope.ts";
import { SEARCH_KEYS, TASK_QUEUES, WORKFLOW_TYPES, overdueUpdate } from "../workflows/messages.ts";
import type { LedgerDecision, PaymentInput, RefundInput } from "../workflows/messages.ts";
import { boundedCalls, startReplacing, whyStranger } from "./temporal-calls.ts";
import type { Bounded, Place } from "./temporal-calls.ts";

/** What the worker asks of Temporal: starts that a second call can't double, and hints. */
export interface TemporalStarts {
  readonly probe: () => Promise<void>;
  /** False where the message was booked or refused before: this delivery is a duplicate, and absorbed. */
  readonly startLedgerEntry: (message: IncomingMessage) => Promise<boolean>;
  /** The same where PostgreSQL says that it is undecided, whatever has completed under its id. */
  readonly startLedgerEntryAgain: (message: IncomingMessage) => Promise<boolean>;
  readonly signalDecision: (workflowId: string, decision: LedgerDecision) => Promise<void>;
  /** Whether it had to be started: false where it runs. */
  readonly startPayment: (payment: RecordedPayment) => Promise<boolean>;
  readonly startRefund: (refund: RecordedRefund) => Promise<boolean>;
  readonly markOverdue: (payment: RecordedPayment) => Promise<void>;
  /** The open runs that were started before, the newest first; visibility is eventually consistent, so a run may come late. */
  readonly shortRuns: ListRuns;
  readonly manualRuns: ListRuns;
}

/** Shorter than the default 10 s, so that a worker's kill -9 costs a payment half of that. */
export const WORKFLOW_TASK_TIMEOUT = "5 seconds";
/** For a start that nobody waits for: the key is there already, so the time isn't looked at. */
const ADOPTION_MS = 60_000;

export function createTemporalStarts(client: Client): TemporalStarts {
  const bounded = boundedCalls(client);
  return {
    probe: async () => {
      await bounded(async () => await client.workflowService.getSystemInfo({}));
    },
    startLedgerEntry: async (message) =>
      await bounded(
        async () => await startLedgerEntry(client, message, "ALLOW_DUPLICATE_FAILED_ONLY"),
      ),
    startLedgerEntryAgain: async (message) => await startAgain(client, bounded, message),
    signalDecision: async (workflowId, decision) => {
      try {
        await bounded(
          async () =>
            await client.workflow
              .getHandle(workflowId)
              .signal<[LedgerDecision]>("ledgerDecision", decision),
        );
      } catch (error) {
        // The run has ended, or was terminated: the books are right without it.
        if (!(error instanceof WorkflowNotFoundError)) throw error;
      }
    },
    startPayment: async (payment) => await bounded(async () => await adoptPayment(client, payment)),
    startRefund: async (refund) => await adoptRefund(client, bounded, refund),
    markOverdue: async (payment) => await markOverdue(client, bounded, payment),
    shortRuns: async (input) =>
      await bounded(
        async () => await openRuns(client, [WORKFLOW_TYPES.payment, WORKFLOW_TYPES.refund], input),
      ),
    manualRuns: async (input) =>
      await bounded(async () => await openRuns(client, [WORKFLOW_TYPES.manualPayment], input)),
  };
}

async function startLedgerEntry(
  client: Client,
  { messageId, type, payload }: IncomingMessage,
  workflowIdReusePolicy: "ALLOW_DUPLICATE" | "ALLOW_DUPLICATE_FAILED_ONLY",
): Promise<boolean> {
  const paymentId = paymentIdOf(payload);
  return await startUnlessThere(
    async () =>
      await client.workflow.start(WORKFLOW_TYPES.ledgerEntry, {
        workflowId: workflowIds.ledgerEntry(messageId),
        taskQueue: TASK_QUEUES.ledger,
        args: [{ messageId, type, payload }],
        workflowIdConflictPolicy: "USE_EXISTING",
        workflowIdReusePolicy,
        workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
        staticSummary: `${type} of ${paymentId}`,
        typedSearchAttributes: [
          { key: SEARCH_KEYS.messageId, value: messageId },
          { key: SEARCH_KEYS.paymentId, value: paymentId },
        ],
      }),
  );
}

async function startAgain(
  client: Client,
  bounded: Bounded,
  message: IncomingMessage,
): Promise<boolean> {
  const place = { type: WORKFLOW_TYPES.ledgerEntry, taskQueue: TASK_QUEUES.ledger };
  const handle = client.workflow.getHandle(workflowIds.ledgerEntry(message.messageId));
  return await startReplacing(
    bounded,
    { handle, place },
    async () => await startLedgerEntry(client, message, "ALLOW_DUPLICATE"),
  );
}

/** What the message says of itself, for finding its run only; a refund's subject is the refund. */
function paymentIdOf(payload: string): string {
  const { data } = JSON.parse(payload) as { data?: { paymentId?: unknown } };
  return typeof data?.paymentId === "string" ? data.paymentId.slice(0, 64) : "unknown";
}

async function adoptPayment(client: Client, payment: RecordedPayment): Promise<boolean> {
  const { merchant, idempotencyKey, currency, paymentId, capture } = payment;
  const input: PaymentInput = { ...payment, notAfter: adoptionEnd() };
  const { type, taskQueue } = placeOf({ capture });
  return await startUnlessThere(
    async () =>
      await client.workflow.start(type, {
        ...ADOPTION,
        workflowId: workflowIds.payment({ merchant, key: idempotencyKey }),
        taskQueue,
        args: [input],
        staticSummary: `${payment.amountMinor} ${currency} minor units, ${payment.source} → ${payment.destination} (taken up again)`,
        typedSearchAttributes: [
          { key: SEARCH_KEYS.paymentId, value: paymentId },
          { key: SEARCH_KEYS.merchant, value: merchant },
          { key: SEARCH_KEYS.currency, value: currency },
        ],
      }),
  );
}

function placeOf({ capture }: Pick<RecordedPayment, "capture">): Place {
  return capture === "manual"
    ? { type: WORKFLOW_TYPES.manualPayment, taskQueue: TASK_QUEUES.manualPayments }
    : { type: WORKFLOW_TYPES.payment, taskQueue: TASK_QUEUES.payments };
}

/** One that is merely slow, or whose worker was killed, doesn't fail so often in a row. */
const FAILED_TASKS_MAX = 5;

/**
 * A fixed update id: Temporal answers a second call of one run from what it has stored, without a new event. A run that
 * can't be marked since its tasks keep failing, or since it is none of ours, is replaced by one that goes on from PostgreSQL.
 */
async function markOverdue(
  client: Client,
  bounded: Bounded,
  payment: RecordedPayment,
): Promise<void> {
  const { merchant, idempotencyKey: key } = payment;
  const handle = client.workflow.getHandle(workflowIds.payment({ merchant, key }));
  try {
    const overdue = { updateId: "overdue", waitForStage: "ACCEPTED" } as const;
    await bounded(async () => await handle.startUpdate(overdueUpdate, overdue));
    return;
  } catch (error) {
    // It has ended in the meantime.
    if (error instanceof WorkflowNotFoundError) return;
    const run = await bounded(async () => await handle.describe());
    const reason = whyStranger(run, placeOf(payment)) ?? whyFailing(run);
    if (reason === null) throw error;
    await bounded(async () => await handle.terminate(reason));
  }
  await bounded(async () => await adoptPayment(client, payment));
}

function whyFailing({ raw }: WorkflowExecutionDescription): string | null {
  const attempt = raw.pendingWorkflowTask?.attempt ?? 0;
  if (attempt <= FAILED_TASKS_MAX) return null;
  return `its workflow task failed ${attempt} times: replaced by the supervisor`;
}

/** A late refund is rare enough to be looked at even where something runs under its id. */
async function adoptRefund(
  client: Client,
  bounded: Bounded,
  refund: RecordedRefund,
): Promise<boolean> {
  const { merchant, idempotencyKey, paymentId } = refund;
  const place = { type: WORKFLOW_TYPES.refund, taskQueue: TASK_QUEUES.payments };
  const workflowId = workflowIds.refund({ merchant, key: idempotencyKey });
  const input: RefundInput = { ...refund, notAfter: adoptionEnd() };
  const handle = client.workflow.getHandle(workflowId);
  return await startReplacing(
    bounded,
    { handle, place },
    async () =>
      await startUnlessThere(
        async () =>
          await client.workflow.start(place.type, {
            ...ADOPTION,
            workflowId,
            taskQueue: place.taskQueue,
            args: [input],
            staticSummary: `refund of payment ${paymentId} (taken up again)`,
            typedSearchAttributes: [
              { key: SEARCH_KEYS.paymentId, value: paymentId },
              { key: SEARCH_KEYS.merchant, value: merchant },
            ],
          }),
      ),
  );
}

const ADOPTION = {
  workflowIdConflictPolicy: "FAIL",
  workflowIdReusePolicy: "ALLOW_DUPLICATE",
  workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
} as const;

function adoptionEnd(): string {
  return new Date(Date.now() + ADOPTION_MS).toISOString();
}

async function startUnlessThere(start: () => Promise<unknown>): Promise<boolean> {
  try {
    await start();
    return true;
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
    throw error;
  }
}

/** Temporal's own limit of a call. */
const LISTED_AT_A_TIME_MAX = 1_000;

async function openRuns(
  client: Client,
  types: readonly string[],
  { startedBefore, limit }: Parameters<ListRuns>[0],
): Promise<RunsPage> {
  const ofTypes = `WorkflowType IN (${types.map((type) => `'${type}'`).join(", ")})`;
  const query = `${ofTypes} AND ExecutionStatus = 'Running' AND StartTime < '${startedBefore.toISOString()}'`;
  const pageSize = Math.min(limit, LISTED_AT_A_TIME_MAX);
  const [payments, refunds]: [Key[], Key[]] = [[], []];
  let seen = 0;
  // Temporal lists running workflows from the newest start to the oldest.
  for await (const { workflowId, startTime, type } of client.workflow.list({ query, pageSize })) {
    const key = keyOfWorkflowId(workflowId);
    if (key !== null) (type === WORKFLOW_TYPES.refund ? refunds : payments).push(key);
    seen += 1;
    // A Date says no more than the millisecond: what is left of this one is looked at with the next page.
    if (seen === limit) {
      return { payments, refunds, goOnBefore: new Date(startTime.getTime() + 1) };
    }
  }
  return { payments, refunds, goOnBefore: null };
}
