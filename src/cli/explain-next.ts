import type { PaymentFacts } from "../database/payment-facts.ts";
import type { MessageTrace } from "../database/payment-trace.ts";
import { money } from "./explain-events.ts";

/** What a payment waits for, and what a person can do where that doesn't come. */
export interface NextStep {
  readonly text: string;
  /** When it happens, at the latest where nothing is broken; null where nobody can say. */
  readonly at: Date | null;
  /** True where it should have happened by now, or where only a person can go on. */
  readonly isStuck: boolean;
  readonly remedies: readonly Remedy[];
}

export interface Remedy {
  readonly command: string;
  readonly why: string;
}

/** What happens next and when: one step for each thing that is under way, or the one that says "nothing". */
export function whatIsNext(facts: PaymentFacts): NextStep[] {
  const steps = [
    ...paymentSteps(facts),
    ...facts.refunds
      .filter(({ status }) => status === "pending")
      .map((refund) => {
        const first = (one: MessageTrace): boolean =>
          one.aggregateId === refund.refundId && one.type === "refund.created";
        const what = `refund ${refund.refundId} of ${money(facts, refund.amountMinor)}`;
        return bookingStep(facts, { message: facts.messages.find(first), what, ends: null });
      }),
    ...announcementSteps(facts),
  ];
  return steps.length === 0 ? [nothing(facts)] : steps;
}

function paymentSteps(facts: PaymentFacts): NextStep[] {
  const { status, paymentId } = facts.payment;
  if (status === "pending") {
    const message = facts.messages.find(({ type }) => type === "payment.created");
    return [bookingStep(facts, { message, what: "the payment", ends: cancel(paymentId) })];
  }
  if (status !== "authorized" && status !== "captured") return [];

  const open = facts.captures.find((capture) => capture.status === "pending");
  const steps = open === undefined ? [] : [captureStep(facts, open)];
  return status === "authorized" ? [...steps, expiryStep(facts)] : steps;
}

function captureStep(
  facts: PaymentFacts,
  { captureId, amountMinor }: { captureId: string; amountMinor: bigint },
): NextStep {
  const message = facts.messages.find(
    (one) => one.type === "payment.captured" && one.captureId === captureId,
  );
  const what = `the capture of ${money(facts, amountMinor)}`;
  return bookingStep(facts, { message, what, ends: null });
}

function expiryStep(facts: PaymentFacts): NextStep {
  const { paymentId, expiresAt } = facts.payment;
  const capture = {
    command: `remit payment capture ${paymentId} --key KEY`,
    why: "takes the money, all of it or --amount",
  };
  const giveBack = {
    command: `remit payment void ${paymentId} --key KEY`,
    why: "gives the rest of it back now",
  };
  if (expiresAt === null) {
    return {
      text: "authorized without an end",
      at: null,
      isStuck: true,
      remedies: [capture, giveBack],
    };
  }
  const isLate = facts.readAt.getTime() > expiresAt.getTime() + SUPERVISION_MS;
  const text = isLate
    ? `was authorized until ${expiresAt.toISOString()} and should have expired by now: no worker has ended it`
    : `authorized until ${expiresAt.toISOString()}: then it expires, and what is left of its hold is released`;
  return {
    text,
    at: expiresAt,
    isStuck: isLate,
    remedies: isLate ? [WORKER, giveBack] : [capture, giveBack],
  };
}

/** What a message that the ledger must book waits for. `ends` is the way out where it will never be booked. */
function bookingStep(
  facts: PaymentFacts,
  { message, what, ends }: { message: MessageTrace | undefined; what: string; ends: Remedy | null },
): NextStep {
  if (message === undefined) {
    const text = `${what} waits for the ledger, and its message is not in the outbox`;
    return { text, at: null, isStuck: true, remedies: [VERIFY] };
  }
  const wayOut = ends === null ? [] : [ends];
  if (message.outcome !== null) {
    // A booking and its payment are one commit, so this is a broken book and not a slow one.
    const text = `the ledger has ${message.outcome} ${message.type}, yet ${what} stands as before`;
    return { text, at: null, isStuck: true, remedies: [VERIFY] };
  }
  if (message.status !== "PUBLISHED") return outboxStep(facts, { message, what, wayOut });

  const publishedAt = message.publishedAt ?? message.createdAt;
  const takenUpAt = new Date(publishedAt.getTime() + LATE_MS + SUPERVISION_MS);
  const isStuck = facts.readAt > takenUpAt;
  const text = isStuck
    ? `${what} waits for the ledger: ${message.type} was published at ${publishedAt.toISOString()} and not booked, and no supervisor took it up`
    : `${what} waits for the ledger, which has ${message.type} since a moment; if it was lost on the way, the supervisor takes it up by ${takenUpAt.toISOString()}`;
  return { text, at: takenUpAt, isStuck, remedies: [WORKER, ...wayOut] };
}

/** What keeps a message in the outbox. */
function outboxStep(
  facts: PaymentFacts,
  { message, what, wayOut }: { message: MessageTrace; what: string; wayOut: readonly Remedy[] },
): NextStep {
  const { type, attempts, leaseUntil, nextAttemptAt } = message;
  const error = message.lastError === null ? "" : `: last error ${message.lastError}`;
  const forPerson = { at: null, isStuck: true, remedies: [OUTBOX, ...wayOut] };
  if (message.status === "DEAD") {
    const text = `${type} is DEAD after ${attempts} attempts${error}. It blocks the later events of its ${message.aggregateType}; ${what} waits until a person decides`;
    return { ...forPerson, text };
  }
  if (message.status === "SKIPPED") {
    return {
      ...forPerson,
      text: `${type} was skipped by a person and is never published: ${what} has nothing more to wait for`,
    };
  }
  const ahead = blockerOf(facts, message);
  if (ahead !== undefined) {
    const text = `${what}: ${type} waits behind ${ahead.type}, which is ${ahead.status}`;
    return { ...forPerson, isStuck: ahead.status === "DEAD", text };
  }
  if (leaseUntil !== null && leaseUntil > facts.readAt) {
    const text = `${what}: a relay has leased ${type} until ${leaseUntil.toISOString()} and is sending it; if that relay died, another one sends it then`;
    return { text, at: leaseUntil, isStuck: false, remedies: RELAY };
  }
  if (nextAttemptAt !== null && nextAttemptAt > facts.readAt) {
    const text = `${what}: attempt ${attempts + 1} to publish ${type} is at ${nextAttemptAt.toISOString()}${error}`;
    return { text, at: nextAttemptAt, isStuck: false, remedies: [...RELAY, ...wayOut] };
  }
  return relayStep(facts, { message, what, wayOut });
}

function relayStep(
  { readAt }: PaymentFacts,
  { message, what, wayOut }: { message: MessageTrace; what: string; wayOut: readonly Remedy[] },
): NextStep {
  const { createdAt, nextAttemptAt, leaseUntil, type } = message;
  const dueSince = new Date(
    Math.max(...[createdAt, nextAttemptAt, leaseUntil].map((time) => time?.getTime() ?? 0)),
  );
  const at = new Date(dueSince.getTime() + RELAY_MS);
  const isStuck = readAt > at;
  const text = isStuck
    ? `${what} waits for the relay: ${type} is due since ${dueSince.toISOString()}. The relay is paused, or the broker or the worker is away`
    : `${what} waits for the relay, which looks every 2 s: ${type} is due`;
  return { text, at, isStuck, remedies: [...RELAY, ...wayOut] };
}

/** Events that nobody's money waits for: they tell others what has happened, or the ledger has them already. */
function announcementSteps(facts: PaymentFacts): NextStep[] {
  const isOpen = ({ status }: MessageTrace): boolean => status === "PENDING" || status === "DEAD";
  return facts.messages.filter(isOpen).flatMap((message) => {
    if (!isForLedger(facts, message.type)) {
      const what = "an announcement (no money waits for it)";
      return [outboxStep(facts, { message, what, wayOut: [] })];
    }
    if (message.outcome === null) return [];
    const what = `its receipt (the ledger has ${message.outcome} it already, and once more changes nothing)`;
    return [outboxStep(facts, { message, what, wayOut: [] })];
  });
}

function isForLedger({ payment }: PaymentFacts, type: string): boolean {
  if (type === "payment.created") return payment.capture === "automatic";
  return type === "payment.captured" || type === "refund.created";
}

function blockerOf({ messages }: PaymentFacts, message: MessageTrace): MessageTrace | undefined {
  return messages.find(
    ({ aggregateId, version, status }) =>
      aggregateId === message.aggregateId &&
      version < message.version &&
      (status === "PENDING" || status === "DEAD"),
  );
}

function nothing({ payment }: PaymentFacts): NextStep {
  const { status, failureCode } = payment;
  const why = failureCode === null ? "" : ` (${failureCode})`;
  const text = `nothing: it is ${status}${why}, and that never changes`;
  return { text, at: null, isStuck: false, remedies: [] };
}

function cancel(paymentId: string): Remedy {
  return {
    command: `remit payment cancel ${paymentId}`,
    why: "gives the money back, unless it was booked first",
  };
}

const OUTBOX: Remedy = {
  command: "remit outbox status",
  why: "how many events wait or are dead, and for how long",
};
const RELAY: readonly Remedy[] = [
  {
    command: "remit relay status",
    why: "says whether it is paused (remit relay resume), or what is away",
  },
  OUTBOX,
];
const WORKER: Remedy = {
  command: "remit worker --role ledger,payments",
  why: "books what came in; its log says what holds it up",
};
const VERIFY: Remedy = { command: "remit verify", why: "names the row that is wrong" };

/** The relay's poll is the slowest way to a due event; several times that, and it isn't coming. */
const RELAY_MS = 10_000;
/** The supervisor looks every minute at what is late by 30 s. */
const LATE_MS = 30_000;
const SUPERVISION_MS = 90_000;
