import { defineSearchAttributeKey } from "@temporalio/common";
import { defineQuery, defineSignal, defineUpdate } from "@temporalio/workflow";
import type { ErrorCode } from "../domain/errors.ts";
import type {
  PartStatus,
  PaymentParameters,
  PaymentStatus,
  RecordedParameters,
} from "../domain/payment.ts";

/** Names and shapes that cross Temporal: all a client needs to know of a workflow. Money crosses as decimal strings. */

export const TASK_QUEUES = {
  payments: "payments",
  /** Authorizations live for days: their queue can be upgraded without ending them. */
  manualPayments: "manual-payments",
  relay: "relay",
  ledger: "ledger",
} as const;

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
  manualPayment: "manualPayment",
  refund: "refund",
  outboxRelay: "outboxRelay",
  ledgerEntry: "ledgerEntry",
  supervisor: "supervisor",
  retention: "retention",
  reconciliation: "reconciliation",
} as const;

/** What a request under a key says of itself, whatever it asks for. */
export interface KeyedRequest {
  readonly merchant: string;
  readonly idempotencyKey: string;
  /** This caller's own id: the key's row stores the first one, which tells a replay from the original. */
  readonly requestId: string;
  /** SHA-256, hex, over the canonical parameters. */
  readonly fingerprint: string;
  /** ISO 8601 time after which the caller no longer waits: a worker that finds it passed records nothing. */
  readonly notAfter: string;
  /** W3C Trace Context of the caller, passed on to the events; says nothing of what is asked, so no part of the fingerprint. */
  readonly traceparent?: string;
}

/** Start argument of `payment` and `manualPayment`. */
export interface PaymentInput extends PaymentParameters, KeyedRequest {
  /** UUIDv7, made by the caller so that the search attribute is known at the start. */
  readonly paymentId: string;
  /** The run of an automatic payment doesn't wait for the ledger; says nothing of what is asked, so no part of the fingerprint. */
  readonly endsAtReceipt?: true;
}

/** Start argument of a run that takes up a payment which is recorded already, such as for a capture after its run was lost. */
export interface PaymentReference {
  readonly paymentId: string;
}

/** How the caller has read an amount in major units. */
export interface Spelling {
  /**
   * The currency by whose decimals: another one than the payment's would make another amount of it, and is refused. Says
   * nothing of what is asked, so no part of the fingerprint.
   */
  readonly readAs?: string;
}

/** Start argument of `refund`. */
export interface RefundInput extends KeyedRequest, RefundParameters, Spelling {
  /** UUIDv7, made by the caller. */
  readonly refundId: string;
}

/** What a caller asks for, checked. */
export interface RefundParameters {
  readonly paymentId: string;
  /** Minor units as a decimal string; null: what is left. */
  readonly amountMinor: string | null;
  /** Null where the caller didn't say; another one than the payment's is refused. */
  readonly currency: string | null;
  readonly reason: string | null;
}

export interface CaptureParameters {
  /** Minor units as a decimal string; null: what is left. */
  readonly amountMinor: string | null;
  readonly currency: string | null;
  /** Whether what is left after it goes back to the source. */
  readonly final: boolean;
}

/** The first decision about a key; frozen by Temporal, so `status` is as it was then. */
export interface PaymentReceipt {
  readonly paymentId: string;
  /** The first caller's `requestId`. */
  readonly requestId: string;
  readonly status: PaymentStatus;
  readonly createdAt: string;
  /** With manual capture. */
  readonly expiresAt?: string;
}

/** The first decision about a capture's key; `status` as it was then. */
export interface CaptureReceipt {
  readonly captureId: string;
  readonly paymentId: string;
  readonly requestId: string;
  readonly amountMinor: string;
  readonly final: boolean;
  readonly status: PartStatus;
}

/** The first decision about a refund's key; `status` as it was then. */
export interface RefundReceipt {
  readonly refundId: string;
  readonly paymentId: string;
  readonly requestId: string;
  readonly amountMinor: string;
  readonly status: PartStatus;
}

/** The first decision about a void's key. */
export interface VoidReceipt {
  readonly paymentId: string;
  readonly requestId: string;
  readonly status: PaymentStatus;
}

/** How a refund ended; the result of the `refund` workflow. */
export interface RefundEnd {
  readonly refundId: string | null;
  readonly status: PartStatus | "refused";
  readonly failureCode: string | null;
}

/**
 * What was decided about a request. `recorded` and `repeated` both carry the first caller's receipt; `refused` left its
 * key and nothing else; `contradictory` and `malformed` left nothing of their own; `expired`: nobody waited any more, so
 * nothing was recorded.
 */
export type RecordResult<Receipt> =
  | {
      readonly outcome: "recorded" | "repeated";
      readonly receipt: Receipt;
      /** What the ledger will decide, where this very call recorded it. */
      readonly messageId?: string;
    }
  | ({ readonly outcome: "refused" | "contradictory" | "malformed" } & RefusalDetails)
  | { readonly outcome: "expired" };

/** How a payment stands in PostgreSQL. */
export interface PaymentStanding {
  readonly status: PaymentStatus;
  readonly failureCode: string | null;
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
  readonly recorded?: RecordedParameters;
}

export interface AcceptArguments {
  readonly fingerprint: string;
}

/** Compares the fingerprint and waits for the receipt. Update id: `accept:<fingerprint>`. */
export const acceptUpdate = defineUpdate<PaymentReceipt, [AcceptArguments]>("accept");

/** The same of a refund; on its own workflow. */
export const acceptRefundUpdate = defineUpdate<RefundReceipt, [AcceptArguments]>("accept");

/** An operation says which payment it means: a run refuses what is meant for another one. */
export interface CapturePaymentInput
  extends KeyedRequest, CaptureParameters, PaymentReference, Spelling {}
export interface VoidPaymentInput extends KeyedRequest, PaymentReference {}

/** Update id: `capture:<fingerprint>`; the key stands in the fingerprint, since one run may have many. */
export const captureUpdate = defineUpdate<CaptureReceipt, [CapturePaymentInput]>("capture");
/** Answers when the ledger has booked or refused the capture. */
export const captureEndUpdate = defineUpdate<null, [{ captureId: string }]>("captureEnd");
export const voidUpdate = defineUpdate<VoidReceipt, [VoidPaymentInput]>("void");

export interface CancelPaymentInput extends PaymentReference, Pick<KeyedRequest, "traceparent"> {}

/** How a payment stands after a cancel was tried. */
export interface CancelReceipt {
  readonly paymentId: string;
  readonly status: PaymentStatus;
  /** False where it had ended so before. */
  readonly changed: boolean;
}
export const cancelUpdate = defineUpdate<CancelReceipt, [CancelPaymentInput]>("cancel");

/** Asked by the supervisor under one fixed update id, so once a run: the payment isn't settled in time. */
export const overdueUpdate = defineUpdate<null, []>("overdue");

/** A hint that the ledger has decided; the books are right without it. */
export interface LedgerDecision {
  /** Of the payment, or of the refund where its workflow is told. */
  readonly status: PaymentStatus;
  readonly failureCode: string | null;
  /**
   * The message that was decided. A run believes a hint that names the message it waits for, since only the ledger knows
   * that one; at any other it reads PostgreSQL. Null from who doesn't know it.
   */
  readonly messageId: string | null;
  /** Which capture it was about. */
  readonly captureId?: string;
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
