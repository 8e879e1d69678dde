import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { WorkflowUpdateFailedError } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { isNotReady, isRunGone, toDomainError } from "./payment-failure.ts";
import type { CallContext } from "./payment-failure.ts";

/** An Update that PostgreSQL makes idempotent: it may be asked any number of times. */
export interface UpdateCall<Receipt> {
  readonly context: CallContext;
  /** The same for all callers of one request: fifty in parallel are one execution, and a repeat needs no worker. */
  readonly updateId: string;
  /** ISO 8601; after it the caller no longer waits. */
  readonly notAfter: string;
  readonly execute: (updateId: string) => Promise<Receipt>;
}

/** A worker that answers takes milliseconds; ten seconds outlast the kill -9 of one (5 s task timeout). */
export const ACCEPT_DEADLINE_MS = 10_000;
const ATTEMPTS_MAX = 4;
const DEADLINE_MS_MAX = 600_000;

/** @throws DomainError `usage` for what no worker could answer rightly */
export function assertCallOptions({
  deadlineMs,
  requestId,
}: {
  deadlineMs: number;
  requestId: string;
}): void {
  if (!Number.isInteger(deadlineMs) || deadlineMs < 1 || deadlineMs > DEADLINE_MS_MAX) {
    throw new DomainError(
      "usage",
      `deadlineMs: expected a whole number of ms from 1 to ${DEADLINE_MS_MAX}, found ${deadlineMs}`,
    );
  }
  if (requestId.length < 1 || requestId.length > 64) {
    throw new DomainError(
      "usage",
      `requestId: expected 1 to 64 characters, found ${requestId.length}`,
    );
  }
}

const NOT_READY_PAUSE_MS = 250;

/**
 * Asks until there is an answer or the deadline has passed.
 * @throws DomainError: the refusal, `outcome_unknown`, `temporal_unreachable`
 */
export async function callUpdate<Receipt>(
  client: Client,
  { context, updateId: firstId, notAfter, execute }: UpdateCall<Receipt>,
): Promise<Receipt> {
  const deadline = new Date(notAfter);
  let updateId = firstId;
  for (let attempt = 1; ; attempt++) {
    try {
      return await client.withDeadline(deadline, async () => await execute(updateId));
    } catch (error) {
      const failure = toDomainError(error, context);
      if (isNotReady(error) && Date.now() < deadline.getTime() - NOT_READY_PAUSE_MS) {
        await sleep(NOT_READY_PAUSE_MS);
        continue;
      }
      if (!canRepeat({ error, failure, attempt })) throw failure;
      // Temporal keeps an update's failure under its id: asked again by that id it would repeat it for ever.
      if (!isRunGone(error)) updateId = `${firstId}:${randomUUID()}`;
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
  if (last.attempt >= ATTEMPTS_MAX) return false;
  if (!isRunGone(last.error) && !(last.error instanceof WorkflowUpdateFailedError)) return false;
  return last.failure instanceof DomainError && ERROR_CODES[last.failure.code].retryable;
}
