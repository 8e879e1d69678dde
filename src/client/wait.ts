import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "@temporalio/client";
import { DomainError } from "../domain/errors.ts";
import { endedWithoutAnswer, isTimeout, toDomainError } from "./payment-failure.ts";

/**
 * Waits for what a run will answer.
 * @throws DomainError `wait_timeout` that names what is recorded and goes on
 */
export async function withinTimeout<Result>(
  client: Client,
  { timeoutMs, what }: { timeoutMs: number; what: string },
  call: () => Promise<Result>,
): Promise<Result> {
  const endsAt = Date.now() + timeoutMs;
  try {
    return await untilAnswered(client, endsAt, call);
  } catch (error) {
    if (isTimeout(error) || Date.now() >= endsAt) {
      throw new DomainError(
        "wait_timeout",
        `${what} is recorded and had no end within ${timeoutMs / 1_000} s`,
        { cause: error },
      );
    }
    throw toDomainError(error, {
      requestId: "",
      merchant: "",
      idempotencyKey: what,
      parameters: {},
    });
  }
}

/** A run that was terminated has said nothing: the supervisor gives its payment another one, which is asked then. */
async function untilAnswered<Result>(
  client: Client,
  endsAt: number,
  call: () => Promise<Result>,
): Promise<Result> {
  for (;;) {
    try {
      return await client.withDeadline(new Date(endsAt), call);
    } catch (error) {
      if (!endedWithoutAnswer(error) || Date.now() >= endsAt) throw error;
      await sleep(RUN_PAUSE_MS);
    }
  }
}

const RUN_PAUSE_MS = 500;
