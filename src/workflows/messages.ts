import { defineSearchAttributeKey } from "@temporalio/common";
import { defineQuery, defineSignal, defineUpdate } from "@temporalio/workflow";
import type { ErrorCode } from "../domain/errors.ts";
import type { PaymentParameters, PaymentStatus } from "../domain/payment.ts";

/** Names and shapes that cross Temporal: all a client needs to know of a workflow. Money crosses as decimal strings. */

export const TASK_QUEUES = { payments: "payments", relay: "relay", ledger: "ledger" } as const;

/** What a run can be found by; registered in the namespace under the names of domain/search-attributes.ts. */
export const SEARCH_KEYS = {
  paymentId: defineSearchAttributeKey("RemitPaymentId", "KEYWORD"),
  merchant: defineSearchAttributeKey("RemitMerchant", "KEYWORD"),
  currency: defineSearchAttributeKey("RemitCurrency", "KEYWORD"),
  messageId: defineSearchAttributeKey("RemitMessageId", "KEYWORD"),
  status: defineSearchAttributeKey("RemitStatus", "KEYWORD"),
} as const;

export const WORKFLOW_TYPES = {
  payment: "payment",
  outboxRelay: "outboxRelay",
  ledgerEntry: "ledgerEntry",
  supervisor: "supervisor",
} as const;

/** Start argument of `payment`. A worker that finds `notAfter` passed records nothing. */
export interface PaymentInput extends PaymentParameters {
  /** UUIDv7, made by the caller so that the search attribute is known at the start. */
  readonly paymentId: string;
  /** This caller's own id: the key's row stores the first one, which tells a replay from the original. */
  readonly requestId: string;
  /** SHA-256, hex, over the canonical parameters. */
  readonly fingerprint: string;
  /** ISO 8601 time after which the caller no longer waits. */
  readonly notAfter: string;
}

/** The first decision about a key; frozen by Temporal, so `status` is as it was then. */
export interface PaymentReceipt {
  readonly paymentId: string;
  /** The first caller's `requestId`. */
  readonly requestId: string;
  readonly status: PaymentStatus;
  readonly createdAt: string;
}

/** How a payment ended; the result of the `payment` workflow. */
export interface PaymentEnd {
  readonly paymentId: string | null;
  /** `refused`: the request was refused inside the transaction; there is a key, and no payment. */
  readonly status: PaymentStatus | "refused";
  readonly failureCode: string | null;
}

/**
 * Details of the `ApplicationFailure` (its `type` is an ErrorCode) by which `accept` fails. `recorded` holds the first
 * request's parameters where the code is `idempotency_key_reused`; `replayed` and `requestId` say who was refused first.
 */
export interface RefusalDetails {
  readonly code: ErrorCode;
  readonly message: string;
  readonly requestId: string;
  readonly recorded?: PaymentParameters;
}

export interface AcceptArguments {
  readonly fingerprint: string;
}

/** Compares the fingerprint and waits for the receipt. Update id: `accept:<fingerprint>`. */
export const acceptUpdate = defineUpdate<PaymentReceipt, [AcceptArguments]>("accept");

/** A hint that the ledger has decided; the books are right without it. */
export interface LedgerDecision {
  readonly status: PaymentStatus;
  readonly failureCode: string | null;
}
export const ledgerDecisionSignal = defineSignal<[LedgerDecision]>("ledgerDecision");

/** Start argument of `ledgerEntry`: the message as it came, and nothing that could differ between two deliveries. */
export interface LedgerEntryInput {
  readonly messageId: string;
  readonly type: string;
  /** The CloudEvents document as stored in the outbox. */
  readonly payload: string;
}

/** `booked` and `refused` are committed decisions, `repeated` says that one stood already. */
export interface LedgerEntryEnd {
  readonly outcome: "booked" | "refused";
  readonly repeated: boolean;
  readonly paymentId: string | null;
  readonly transactionId: string | null;
  readonly error: string | null;
}

export interface OutboxRelayInput {
  readonly fromShard: number;
  readonly toShard: number;
  readonly state?: RelayState;
}

/** What survives continue-as-new. */
export interface RelayState {
  readonly mode: "running" | "paused" | "draining";
  readonly reason: string | null;
  readonly since: string;
  readonly eventsPerSecondMax: number | null;
  readonly published: number;
  readonly lostLeases: number;
}

export const relayStatusQuery = defineQuery<RelayState>("status");
export const relayPauseUpdate = defineUpdate<RelayState, [{ reason: string }]>("pause");
export const relayResumeUpdate = defineUpdate<RelayState, []>("resume");
export const relayDrainUpdate = defineUpdate<RelayState, []>("drain");
export const relaySetRateUpdate = defineUpdate<RelayState, [{ eventsPerSecondMax: number | null }]>(
  "setRate",
);
