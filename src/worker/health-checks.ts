import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@temporalio/client";
import type { OutboxProgress } from "../database/outbox-view-queries.ts";
import type { OutboxListener } from "../database/outbox-wake-up.ts";
import type { DatabaseProbe } from "../database/database-probe.ts";
import { DomainError } from "../domain/errors.ts";
import type { PublisherContact } from "../messaging/publisher-contact.ts";
import { keptFor } from "../observability/health.ts";
import type { CheckResult, HealthCheck } from "../observability/health.ts";
import type { Intake } from "./ledger-intake.ts";

/** Where a worker process stands between its start and its end. */
export type Phase = "starting" | "running" | "draining";

/** Probers come every few seconds and there may be several; a dependency is asked once in this time. */
const KEPT_MS = 1_000;
/** Under the bound of a check, so that the reason says what didn't answer. */
const ANSWER_MS_MAX = 1_500;
const ASK_AGAIN_MS = 5_000;
/** The relay tries again within 15 s of an outage and a send takes 3 s: after this it has gone to another process. */
const OUTAGE_STALE_MS = 30_000;
const ERROR_CHARACTERS_MAX = 200;

/** What a worker process answers to a prober; it comes to have more checks while it starts. */
export class WorkerHealth {
  /** Red until everything polls, and again before the first part of a shutdown. */
  phase: Phase = "starting";
  readonly #checks: HealthCheck[] = [
    { name: "phase", check: () => ({ ok: this.phase === "running", reason: this.phase }) },
  ];

  readonly checks = (): readonly HealthCheck[] => this.#checks;

  add(...checks: readonly HealthCheck[]): void {
    this.#checks.push(...checks);
  }
}

export function databaseCheck(probe: DatabaseProbe): HealthCheck {
  return keptFor(KEPT_MS, {
    name: "database",
    check: async () => {
      try {
        await probe.answers();
        return { ok: true, reason: "PostgreSQL answers" };
      } catch (error) {
        const known = error instanceof DomainError ? error.message : "PostgreSQL does not answer";
        return { ok: false, reason: known };
      }
    },
  });
}

/**
 * The native client tries a refused connection again and again, beyond any deadline of the call. So an unanswered call
 * is left to itself, and the next one waits for it for a while, so that an outage doesn't pile them up.
 */
export function temporalCheck({ connection, workflowService }: Client): HealthCheck {
  let asked: { readonly answer: Promise<CheckResult>; readonly atMs: number } | undefined;
  const ask = async (): Promise<CheckResult> => {
    try {
      await connection.withDeadline(
        Date.now() + ANSWER_MS_MAX,
        async () => await workflowService.getSystemInfo({}),
      );
      return { ok: true, reason: "Temporal answers" };
    } catch {
      return TEMPORAL_AWAY;
    }
  };
  return keptFor(KEPT_MS, {
    name: "temporal",
    check: async () => {
      if (asked === undefined || Date.now() - asked.atMs > ASK_AGAIN_MS) {
        const latest = { answer: ask(), atMs: Date.now() };
        asked = latest;
        void latest.answer.then(() => {
          if (asked === latest) asked = undefined;
        });
      }
      return await Promise.race([asked.answer, delay(ANSWER_MS_MAX, TEMPORAL_AWAY)]);
    },
  });
}

const TEMPORAL_AWAY: CheckResult = { ok: false, reason: "Temporal does not answer" };

/** A worker of the SDK stays RUNNING in an outage of Temporal and polls again by itself. */
export function pollingCheck(
  workers: readonly { readonly taskQueue: string; readonly state: () => string }[],
): HealthCheck {
  return {
    name: "workers",
    check: () => ({
      ok: workers.every(({ state }) => state() === "RUNNING"),
      reason: workers.map(({ taskQueue, state }) => `${taskQueue}: ${state()}`).join(", "),
    }),
  };
}

export function intakeCheck(intake: Intake): HealthCheck {
  return {
    name: "intake",
    check: () => {
      const away = intake.away();
      if (away === null) return { ok: true, reason: "reads the ledger's queue" };
      const name = away === "broker" ? "SQS does not answer" : "Temporal does not answer";
      return { ok: false, reason: `${name}: no message is taken from the ledger's queue` };
    },
  };
}

/** What the relay's own sends met. SNS isn't asked: a prober's questions would be billed and throttled like sends. */
export function brokerCheck(contact: PublisherContact): HealthCheck {
  return {
    name: "broker",
    check: () => {
      const outage = contact.outage();
      if (outage === null) return { ok: true, reason: "no send failed" };
      const seconds = Math.round((Date.now() - outage.atMs) / 1_000);
      const error = outage.error.slice(0, ERROR_CHARACTERS_MAX);
      if (Date.now() - outage.atMs <= OUTAGE_STALE_MS) {
        return { ok: false, reason: `SNS takes no events (${error}), last tried ${seconds} s ago` };
      }
      return {
        ok: true,
        reason: `nothing was sent from here since an outage ${seconds} s ago (${error})`,
      };
    },
  };
}

/**
 * Red where commits woke the relay before and no longer do. Behind a transaction pooler they never can: that is a way to
 * run, in which an event is sent a moment later, and the reason says so.
 */
export function listenerCheck(
  listener: Pick<OutboxListener, "isAlive">,
  { pollIntervalMs }: { pollIntervalMs: number },
): HealthCheck {
  let hasHeard = false;
  return {
    name: "listen",
    check: () => {
      if (listener.isAlive()) {
        hasHeard = true;
        return { ok: true, reason: "commits wake the relay" };
      }
      const meanwhile = `an event may wait ${pollIntervalMs} ms`;
      return hasHeard
        ? { ok: false, reason: `deaf, connecting again: ${meanwhile}` }
        : { ok: true, reason: `polling only: ${meanwhile} (is a transaction pooler between?)` };
    },
  };
}

/** So many polls of a relay that is well are far apart from a claim that merely comes late. */
const POLLS_WITHOUT_PROGRESS = 15;

/**
 * Red where events are due for so long and nobody touches the outbox: no relay runs, it hangs, or it is paused. A backlog
 * that drains is progress, however old its events are.
 */
export function progressCheck(
  look: (input: { waitingMs: number }) => Promise<OutboxProgress>,
  { pollIntervalMs }: { pollIntervalMs: number },
): HealthCheck {
  const waitingMs = POLLS_WITHOUT_PROGRESS * pollIntervalMs;
  let still: { readonly touches: string; readonly sinceMs: number } | null = null;
  return keptFor(PROGRESS_KEPT_MS, {
    name: "progress",
    check: async () => {
      const { isWaiting, touches } = await look({ waitingMs });
      if (!isWaiting) {
        still = null;
        return { ok: true, reason: "no event waits" };
      }
      if (still?.touches !== touches) still = { touches, sinceMs: Date.now() };
      const stillMs = Date.now() - still.sinceMs;
      if (stillMs < waitingMs) return { ok: true, reason: "events wait and are worked on" };
      const seconds = Math.round((stillMs + waitingMs) / 1_000);
      return {
        ok: false,
        reason: `events wait for ${seconds} s and nobody takes them: remit relay status`,
      };
    },
  });
}

/** The look reads what is open in the outbox; a prober comes every few seconds. */
const PROGRESS_KEPT_MS = 2_000;
