import { activityInfo } from "@temporalio/activity";
import type { AppliedMessage } from "../activities/due-booking.ts";
import type { PaymentActivities } from "../activities/payment-activities.ts";
import type { BatchResult } from "../activities/publish-outbox-batch.ts";
import type { ReconciliationActivities } from "../activities/reconcile.ts";
import type { RelayReport } from "../activities/relay-progress.ts";
import type { RetentionActivities } from "../activities/retention.ts";
import type { SupervisorActivities } from "../activities/supervise.ts";
import { traceIdOf } from "../domain/trace-context.ts";
import type { Logger } from "../observability/logger.ts";
import type { Operation } from "../observability/metrics.ts";
import type { KeyedRequest, RecordResult } from "../workflows/messages.ts";

/**
 * Activities as they are, with a line for each thing that was decided, under every id by which it can be looked for. What
 * changed nothing writes none, so that a quiet system is silent.
 */

/** What the Web UI knows the running activity by, and the how manieth try it is. */
function place(): { workflowId?: string; runId?: string; attempt: number } {
  const { workflowExecution, attempt } = activityInfo();
  return { ...workflowExecution, attempt };
}

/** An activity's failure as it was, before Temporal gets what may be shown of it. */
export function logFailure(logger: Logger, activity: string, failed: FailedActivity): void {
  const { paymentId, messageId } = failed.input;
  logger.warn({ activity, ...place(), paymentId, messageId, err: failed.error }, "activity failed");
}

interface FailedActivity {
  readonly input: { readonly paymentId?: unknown; readonly messageId?: unknown };
  readonly error: unknown;
}

export function loggedPayments(logger: Logger, activities: PaymentActivities): PaymentActivities {
  const requested =
    <Input extends KeyedRequest & { paymentId: string }, Receipt extends object>(
      operation: Operation,
      run: (input: Input) => Promise<RecordResult<Receipt>>,
    ) =>
    async (input: Input): Promise<RecordResult<Receipt>> => {
      const result = await run(input);
      const { outcome } = result;
      const line = { ...place(), ...idsOf(operation, input, result), operation, outcome };
      const level = outcome === "contradictory" || outcome === "malformed" ? "warn" : "info";
      logger[level](line, `${operation} ${outcome}`);
      return result;
    };
  return {
    ...activities,
    recordPayment: requested("pay", activities.recordPayment),
    capturePayment: requested("capture", activities.capturePayment),
    voidPayment: requested("void", activities.voidPayment),
    recordRefund: requested("refund", activities.recordRefund),
    async takeUpPayment(input) {
      const taken = await activities.takeUpPayment(input);
      const { paymentId } = input;
      if (taken === null) logger.warn({ ...place(), paymentId }, "no payment to take up");
      else logger.info({ ...place(), paymentId, status: taken.receipt.status }, "payment taken up");
      return taken;
    },
    async cancelPayment(input) {
      const standing = await activities.cancelPayment(input);
      if (standing?.changed === true) {
        const { paymentId, traceparent } = input;
        const ids = { ...place(), paymentId, traceId: traceIdOf(traceparent) ?? undefined };
        logger.info({ ...ids, status: standing.status }, "payment cancelled");
      }
      return standing;
    },
    async expirePayment(input) {
      const standing = await activities.expirePayment(input);
      if (standing !== null && standing.status !== "authorized") {
        const { paymentId } = input;
        logger.info({ ...place(), paymentId, status: standing.status }, "authorization is over");
      }
      return standing;
    },
  };
}

/** A payment that wasn't recorded has no id that anybody could look for; its merchant and key are in the workflow's id. */
function idsOf(
  operation: Operation,
  { paymentId, requestId, traceparent }: KeyedRequest & { paymentId: string },
  result: RecordResult<object>,
): Record<string, unknown> {
  const receipt = "receipt" in result ? result.receipt : {};
  const isKnown = operation !== "pay" || "receipt" in result;
  const { status: _status, createdAt: _createdAt, ...ids } = receipt as Record<string, unknown>;
  return {
    ...(isKnown ? { paymentId } : {}),
    requestId,
    ...ids,
    ...("messageId" in result ? { messageId: result.messageId } : {}),
    ...("code" in result ? { code: result.code } : {}),
    traceId: traceIdOf(traceparent) ?? undefined,
  };
}

/** By what the outbox has of the message, since anybody can write into a queue. */
export function logBooking(logger: Logger, messageId: string, applied: AppliedMessage): void {
  const { outcome, repeated, paymentId, transactionId, error, event } = applied;
  const ids = { messageId, paymentId, transactionId, traceId: traceIdOf(event?.traceparent) };
  const about = known({ type: event?.type ?? null, error });
  const level = error === "message_unknown" ? "warn" : "info";
  const text = repeated ? `message was ${outcome} before` : `message ${outcome}`;
  logger[level]({ ...place(), ...known(ids), outcome, ...about }, text);
}

function known(ids: Readonly<Record<string, string | null>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(ids).filter((entry): entry is [string, string] => entry[1] !== null),
  );
}

export function loggedSupervision(
  logger: Logger,
  activities: SupervisorActivities,
): SupervisorActivities {
  return {
    async startMissing(input) {
      const summary = await activities.startMissing(input);
      const { failed, firstFailure, workflowsStarted, messagesTakenUp } = summary;
      const { overdue, expired, runsLost } = summary;
      const done = { workflowsStarted, messagesTakenUp, overdue, expired, runsLost, failed };
      const didSomething = Object.values(done).some((count) => count > 0);
      if (didSomething) {
        const line = { ...place(), ...done, ...known({ firstFailure }) };
        logger[failed + runsLost > 0 ? "warn" : "info"](line, "supervision mended what it could");
      }
      return summary;
    },
  };
}

export function loggedReconciliation(
  logger: Logger,
  activities: ReconciliationActivities,
): ReconciliationActivities {
  return {
    async reconcile(input) {
      const summary = await activities.reconcile(input);
      const line = { ...place(), ...input, ...summary };
      if (!summary.ok) logger.error(line, "the books are broken: remit reconciliation findings");
      else if (input.scope === "full") logger.info(line, "the books are right");
      return summary;
    },
  };
}

export function loggedRetention(
  logger: Logger,
  activities: RetentionActivities,
): RetentionActivities {
  return {
    async purge() {
      const summary = await activities.purge();
      const { outboxPurged, inboxPurged } = summary;
      if (outboxPurged + inboxPurged > 0) logger.info({ ...place(), ...summary }, "purged");
      return summary;
    },
  };
}

/** A line a batch and not an event: thousands a second would cost more than their sending. */
export function loggedRelay(logger: Logger, report: RelayReport): RelayReport {
  return {
    batch(result) {
      report.batch(result);
      logBatch(logger, result);
    },
    away(who, reason) {
      report.away(who, reason);
      logger.warn({ ...place(), what: who, reason }, "relay waits");
    },
    back(who) {
      report.back(who);
      logger.info({ ...place(), what: who }, "relay goes on");
    },
  };
}

function logBatch(logger: Logger, { marked, failures, lostLeases }: BatchResult): void {
  if (marked.length > 0) {
    const messages = marked.map(({ messageId, aggregateId }) => ({ messageId, aggregateId }));
    logger.info({ ...place(), messages }, "messages published");
  }
  for (const { isDead, ...failure } of failures) {
    if (isDead) logger.error({ ...place(), ...failure }, "message is dead: remit outbox list");
    else logger.warn({ ...place(), ...failure }, "message failed and is tried again");
  }
  // Each of them goes out once more, and is booked once.
  if (lostLeases > 0) logger.warn({ ...place(), lostLeases }, "leases ran out before the mark");
}
