import type { Database } from "../database/database.ts";
import { getPayment } from "../database/payment-queries.ts";
import type { OutboxNotifier } from "../database/outbox-wake-up.ts";
import type { PaymentStatus } from "../domain/payment.ts";
import type { PaymentInput } from "../workflows/messages.ts";
import { cancelPayment } from "./cancel-payment.ts";
import type { PaymentStanding } from "./cancel-payment.ts";
import { recordPayment } from "./record-payment.ts";
import type { RecordPaymentResult } from "./record-payment.ts";

export interface PaymentActivities {
  readonly recordPayment: (input: PaymentInput) => Promise<RecordPaymentResult>;
  readonly cancelPayment: (input: { paymentId: string }) => Promise<PaymentStanding | null>;
  readonly readPayment: (input: { paymentId: string }) => Promise<PaymentStanding | null>;
}

/** The steps of a payment; each is one transaction and may run any number of times. */
export function createPaymentActivities({
  database,
  notifier,
}: {
  database: Database;
  notifier: OutboxNotifier;
}): PaymentActivities {
  return {
    async recordPayment(input) {
      const result = await recordPayment(database, input);
      if (result.outcome === "recorded") notifier.notify();
      return result;
    },
    async cancelPayment({ paymentId }) {
      const standing = await cancelPayment(database, paymentId);
      notifier.notify();
      return standing;
    },
    async readPayment({ paymentId }) {
      const payment = await getPayment(database, paymentId);
      if (payment === null) return null;
      return { status: payment.status as PaymentStatus, failureCode: payment.failureCode };
    },
  };
}
