import { setTimeout as delay } from "node:timers/promises";
import { parseMessage } from "../messaging/envelope.ts";
import type { IncomingMessage } from "../messaging/envelope.ts";
import { RECEIVE_MAX } from "../messaging/sqs-receiver.ts";
import type { ReceivedMessage, Receiver } from "../messaging/sqs-receiver.ts";

export interface IntakeDependencies {
  readonly receiver: Receiver;
  /** Resolves once Temporal has the workflow; false where that had ended before. Throws where Temporal can't be reached. */
  readonly startLedgerEntry: (message: IncomingMessage) => Promise<boolean>;
  /** Counts one more delivery of a message that is decided already. */
  readonly countDelivery: (messageId: string) => Promise<void>;
  /** Resolves where Temporal answers. */
  readonly probeTemporal: () => Promise<void>;
  readonly report: (event: IntakeEvent) => void;
}

export type IntakeEvent =
  | {
      readonly kind: "malformed";
      readonly reason: string;
      /** SQS's own: a malformed message has no other. */
      readonly sqsMessageId: string;
      readonly receiveCount: number;
    }
  /** Delivered once more after its workflow had ended. */
  | { readonly kind: "again"; readonly messageId: string; readonly receiveCount: number }
  | { readonly kind: "away"; readonly what: "temporal" | "broker"; readonly error: unknown }
  | { readonly kind: "back"; readonly what: "temporal" | "broker" };

export interface Intake {
  /** Null while messages flow; otherwise what is away. */
  readonly away: () => "temporal" | "broker" | null;
  /** Starts no new poll, lets the running ones return, and ends when every message in hand has its answer. */
  readonly stop: () => Promise<void>;
}

/** Messages in hand at once; more would only wait here while their visibility runs out. */
const SLOTS = 40;
const POLLERS = 2;
/** Not 0: the other poller would have it again at once, and fauxqs 2.4 loses a message that is given back with 0. */
const GIVE_BACK_SECONDS = 2;
const BACKOFF_BASE_MS = 200;
const BACKOFF_CEILING_MS = 5_000;
/** Deletes of this long are sent together, ten in a call. */
const DELETE_GATHER_MS = 5;

/**
 * Moves messages from the queue to Temporal: start `ledger:<messageId>`, then delete. The start is the durable part,
 * the ACK follows it; a crash in between delivers the message again, and the workflow id absorbs it.
 */
export function startLedgerIntake(dependencies: IntakeDependencies): Intake {
  const { receiver, report } = dependencies;
  const deletes = new DeleteBuffer(receiver);
  const inHand = new Set<Promise<void>>();
  const stopping = new AbortController();
  let away: "temporal" | "broker" | null = null;
  let failures = 0;

  const goAway = (what: "temporal" | "broker", error: unknown): void => {
    failures += 1;
    if (away !== what) report({ kind: "away", what, error });
    away = what;
  };
  const comeBack = (what: "temporal" | "broker"): void => {
    if (away !== what) return;
    failures = 0;
    away = null;
    report({ kind: "back", what });
  };

  async function handle(received: ReceivedMessage): Promise<void> {
    const { body, sqsMessageId, receiveCount } = received;
    const parsed = parseMessage(body);
    if (!parsed.ok) {
      // Left to the queue's redrive policy: it comes again until the dead-letter queue has it.
      report({ kind: "malformed", reason: parsed.reason, sqsMessageId, receiveCount });
      return;
    }
    try {
      const { messageId } = parsed.message;
      const isNew = await dependencies.startLedgerEntry(parsed.message);
      comeBack("temporal");
      if (!isNew) {
        report({ kind: "again", messageId, receiveCount });
        // A count that gets lost is no reason to have the message again.
        await dependencies.countDelivery(messageId).catch(() => undefined);
      }
      deletes.add(received.receiptHandle);
    } catch (error) {
      goAway("temporal", error);
      // A refused release is no loss: the message comes back when its visibility ends.
      await receiver.release([received.receiptHandle], GIVE_BACK_SECONDS).catch(() => undefined);
    }
  }

  async function temporalIsBack(): Promise<boolean> {
    try {
      await dependencies.probeTemporal();
      comeBack("temporal");
      return true;
    } catch (error) {
      goAway("temporal", error);
      return false;
    }
  }

  async function poll(): Promise<void> {
    while (!stopping.signal.aborted) {
      if (failures > 0) await pause(backoffMs(failures), stopping.signal);
      if (stopping.signal.aborted) return;
      // While Temporal is away nothing is received: each receive counts towards the dead-letter limit.
      if (away === "temporal" && !(await temporalIsBack())) continue;
      while (inHand.size > SLOTS - RECEIVE_MAX) await Promise.race(inHand);
      try {
        const messages = await receiver.receive(RECEIVE_MAX);
        comeBack("broker");
        for (const message of messages) {
          const work = handle(message).finally(() => inHand.delete(work));
          inHand.add(work);
        }
      } catch (error) {
        goAway("broker", error);
      }
    }
  }

  const pollers = Array.from({ length: POLLERS }, poll);
  return {
    away: () => away,
    stop: async () => {
      stopping.abort();
      await Promise.all(pollers);
      await Promise.all(inHand);
      await deletes.flush();
    },
  };
}

function backoffMs(failures: number): number {
  return Math.random() * Math.min(BACKOFF_BASE_MS * 2 ** failures, BACKOFF_CEILING_MS) + 50;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
}

class DeleteBuffer {
  readonly #receiver: Receiver;
  #handles: string[] = [];
  #flushing: Promise<void> | undefined;

  constructor(receiver: Receiver) {
    this.#receiver = receiver;
  }

  add(receiptHandle: string): void {
    this.#handles.push(receiptHandle);
    this.#flushing ??= this.#flushLater();
  }

  async flush(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  async #flushLater(): Promise<void> {
    await delay(DELETE_GATHER_MS);
    while (this.#handles.length > 0) {
      const batch = this.#handles.splice(0, RECEIVE_MAX);
      // Not deleted, it is delivered again and absorbed.
      await this.#receiver.delete(batch).catch(() => undefined);
    }
    this.#flushing = undefined;
  }
}
