import type { KeyFact, PaymentFacts } from "../database/payment-facts.ts";
import { workflowIds } from "../domain/ids.ts";
import { formatMajor } from "../domain/money.ts";
import { money, whatHappened } from "./explain-events.ts";
import type { PaymentHappening } from "./explain-events.ts";
import { whatIsNext } from "./explain-next.ts";
import type { NextStep } from "./explain-next.ts";
import { terminalLines } from "./terminal-text.ts";

/** The story of a payment, each part ready to be printed or sent as JSON. */
export interface PaymentStory extends Pick<
  PaymentFacts,
  "messages" | "transactions" | "captures" | "refunds"
> {
  readonly paymentId: string;
  readonly status: string;
  readonly summary: string;
  readonly happened: readonly (PaymentHappening & { afterMs: number })[];
  readonly held: readonly string[];
  readonly balances: readonly string[];
  readonly workflows: readonly { workflowId: string; workflowUrl: string | null }[];
  readonly next: readonly NextStep[];
  readonly isStuck: boolean;
  readonly readAt: Date;
}

/** Tells a payment from its rows alone: no Temporal, no broker, no clock but the database's. */
export function tellPayment(
  facts: PaymentFacts,
  urlOf: (workflowId: string) => string | null,
): PaymentStory {
  const { payment, readAt } = facts;
  const { messages, transactions, captures, refunds } = facts;
  const next = whatIsNext(facts);
  return {
    paymentId: payment.paymentId,
    status: payment.status,
    summary: summaryOf(facts),
    happened: whatHappened(facts).map((happening) => ({
      ...happening,
      afterMs: happening.at.getTime() - payment.createdAt.getTime(),
    })),
    held: heldTexts(facts),
    balances: balanceTexts(facts),
    workflows: workflowIdsOf(facts).map((workflowId) => ({
      workflowId,
      workflowUrl: urlOf(workflowId),
    })),
    next,
    isStuck: next.some(({ isStuck }) => isStuck),
    readAt,
    messages,
    transactions,
    captures,
    refunds,
  };
}

function summaryOf(facts: PaymentFacts): string {
  const { payment } = facts;
  const { source, destination, capture, idempotencyKey, merchant, description } = payment;
  const details = [
    `${money(facts, payment.amountMinor)} from ${source} to ${destination}`,
    `${capture} capture`,
    `key ${idempotencyKey} of merchant ${merchant}`,
    ...(capture === "manual" ? [`captured ${money(facts, payment.capturedMinor)}`] : []),
    ...(payment.refundedMinor > 0n ? [`refunded ${money(facts, payment.refundedMinor)}`] : []),
  ];
  return details.join(", ") + (description === null ? "" : ` (${description})`);
}

function heldTexts(facts: PaymentFacts): string[] {
  return facts.holds
    .filter(({ remainingMinor }) => remainingMinor > 0n)
    .map(({ accountId, amountMinor, remainingMinor, refundId }) => {
      const of = remainingMinor === amountMinor ? "" : ` of ${money(facts, amountMinor)}`;
      const what = refundId === null ? "the payment" : `refund ${refundId}`;
      return `${money(facts, remainingMinor)}${of} on ${accountId} for ${what}`;
    });
}

function balanceTexts({ accounts, payment: { currency } }: PaymentFacts): string[] {
  return accounts.map((account) => {
    const status = account.status === "active" ? "" : ` (${account.status})`;
    const [posted, held, available] = [
      account.postedMinor,
      account.heldMinor,
      account.availableMinor,
    ].map((amountMinor) => formatMajor(amountMinor, currency));
    return `${account.accountId}${status}: posted ${posted}, held ${held}, available ${available} ${currency}`;
  });
}

/** The payment's, its refunds', and one a message that the ledger took or was sent. */
function workflowIdsOf({ payment, refunds, messages, transactions }: PaymentFacts): string[] {
  const { merchant, idempotencyKey } = payment;
  const booked = [...messages.filter(({ receivedAt }) => receivedAt !== null), ...transactions].map(
    ({ messageId }) => workflowIds.ledgerEntry(messageId),
  );
  return [
    workflowIds.payment({ merchant, key: idempotencyKey }),
    ...refunds.map((refund) => workflowIds.refund({ merchant, key: refund.idempotencyKey })),
    ...new Set(booked),
  ];
}

/** The story as lines for a person. */
export function storyText(story: PaymentStory): string {
  const { paymentId, status, summary, happened, workflows } = story;
  return terminalLines([
    `payment ${paymentId}: ${status}`,
    `  ${summary}`,
    "",
    "What happened (UTC)",
    ...happened.map(happeningLine),
    "",
    "How it stands",
    `  held now: ${story.held.join("; ") || "nothing"}`,
    ...story.balances.map((text) => `  ${text}`),
    "",
    "What happens next",
    ...story.next.map(({ text }) => `  ${text}`),
    ...remedyLines(story),
    "",
    "Where to look",
    ...workflows.map(({ workflowId, workflowUrl }) =>
      workflowUrl === null ? `  ${workflowId}` : `  ${workflowId}  ${workflowUrl}`,
    ),
  ]);
}

function happeningLine({ at, afterMs, step, text }: PaymentStory["happened"][number]): string {
  const time = at.toISOString().replace("T", " ").replace("Z", "");
  const after = `+${(afterMs / 1_000).toFixed(3)} s`;
  return `  ${time} ${after.padStart(AFTER_WIDTH)}  ${step.padEnd(STEP_WIDTH)} ${text}`;
}

const AFTER_WIDTH = 10;
const STEP_WIDTH = 14;

function remedyLines({ next, isStuck }: PaymentStory): string[] {
  const remedies = new Map(
    next.flatMap((step) => step.remedies).map(({ command, why }) => [command, why]),
  );
  if (remedies.size === 0) return [];
  const lines = [...remedies].map(([command, why]) => `  ${command}  # ${why}`);
  return ["", isStuck ? "It is stuck. What to do" : "What to do if it is stuck", ...lines];
}

/** What stands under a key that has no payment: the refusal, which is all that it left. */
export function refusalText(fact: KeyFact): string {
  const { merchant, key, operation, createdAt, refusal, paymentId } = fact;
  const about = paymentId === null ? "" : ` of payment ${paymentId}`;
  return terminalLines([
    `key ${key} of merchant ${merchant}: a ${operation}${about}, refused`,
    `  ${createdAt.toISOString().replace("T", " ").replace("Z", "")} (UTC)  ${refusal?.message ?? ""} (${refusal?.code ?? ""})`,
    ...Object.entries(fact.parameters)
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => `  ${name}: ${String(value)}`),
    "",
    "How it stands",
    "  the refusal is all there is: it left no money held, no event and no ledger entry",
    "",
    "What happens next",
    "  nothing: the same key gets the same refusal for ever. Mend the cause, then ask with a new key",
  ]);
}
