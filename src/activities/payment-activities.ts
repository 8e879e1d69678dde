import type { Database } from "../database/database.ts";
import type { OutboxNotifier } from "../database/outbox-wake-up.ts";
import { getCapture, getRefund } from "../database/part-queries.ts";
import { readStanding } from "../database/supervision-queries.ts";
import { UUID_PATTERN } from "../domain/ids.ts";
import type { PartStatus } from "../domain/payment.ts";
import type {
  CancelPaymentInput,
  CapturePaymentInput,
  CaptureReceipt,
  PaymentInput,
  PaymentReference,
  PaymentStanding,
  RecordResult,
  RefundInput,
  RefundReceipt,
  VoidPaymentInput,
  VoidReceipt,
} from "../workflows/messages.ts";
import { cancelPayment } from "./cancel-payment.ts";
import type { CancelledPayment } from "./cancel-payment.ts";
import { capturePayment } from "./capture-payment.ts";
import { expirePayment, voidPayment } from "./end-authorization.ts";
import { recordPayment } from "./record-payment.ts";
import type { RecordPaymentResult } from "./record-payment.ts";
import { recordRefund } from "./record-refund.ts";
import { takeUpPayment } from "./take-up-payment.ts";
import type { TakenUpPayment } from "./take-up-payment.ts";

/** How a refund stands in PostgreSQL. */
export interface PartStanding {
  readonly status: PartStatus;
  readonly failureCode: string | null;
}

export interface PaymentActivities {
  readonly recordPayment: (input: PaymentInput) => Promise<RecordPaymentResult>;
  readonly takeUpPayment: (input: PaymentReference) => Promise<TakenUpPayment | null>;
  readonly readPayment: (input: PaymentReference) => Promise<PaymentStanding | null>;
  readonly readCapture: (input: { captureId: string }) => Promise<PartStatus | null>;
  readonly readRefund: (input: { refundId: string }) => Promise<PartStanding | null>;
  readonly capturePayment: (input: CapturePaymentInput) => Promise<RecordResult<CaptureReceipt>>;
  readonly voidPayment: (input: VoidPaymentInput) => Promise<RecordResult<VoidReceipt>>;
  readonly cancelPayment: (input: CancelPaymentInput) => Promise<CancelledPayment | null>;
  readonly expirePayment: (input: PaymentReference) => Promise<PaymentStanding | null>;
  readonly recordRefund: (input: RefundInput) => Promise<RecordResult<RefundReceipt>>;
}

/** The steps of a payment and of its refunds; each is one transaction and may run any number of times. */
export function createPaymentActivities({
  database,
  notifier,
}: {
  database: Database;
  notifier: OutboxNotifier;
}): PaymentActivities {
  /** A step that may have written an event wakes the relay. */
  const andNotify = async <Result>(step: Promise<Result>): Promise<Result> => {
    const result = await step;
    notifier.notify();
    return result;
  };
  return {
    async recordPayment(input) {
      const result = await recordPayment(database, input);
      if (result.outcome === "recorded") notifier.notify();
      return result;
    },
    takeUpPayment: async ({ paymentId }) => await takeUpPayment(database, paymentId),
    readPayment: async ({ paymentId }) => await readStanding(database, paymentId),
    readCapture: async ({ captureId }) =>
      UUID_PATTERN.test(captureId)
        ? ((await getCapture(database, captureId))?.status ?? null)
        : null,
    readRefund: async ({ refundId }) => {
      const refund = await getRefund(database, refundId);
      return refund === null ? null : { status: refund.status, failureCode: refund.failureCode };
    },
    capturePayment: async (input) => await andNotify(capturePayment(database, input)),
    voidPayment: async (input) => await andNotify(voidPayment(database, input)),
    cancelPayment: async (input) => await andNotify(cancelPayment(database, input)),
    expirePayment: async ({ paymentId }) => await andNotify(expirePayment(database, paymentId)),
    recordRefund: async (input) => await andNotify(recordRefund(database, input)),
  };
}
