import type { PaymentState } from "../domain/decisions.ts";
import type { OutboxEvent } from "../domain/events.ts";
import type { Tx } from "./database.ts";
import { eventValues } from "./event-values.ts";

/** Statements that write a ledger transaction with its entries; the accounts are locked last. */

/** Shared accounts are locked last, so that a busy one is held for the posting and the commit only. */
const ACCOUNT_RANK =
  "CASE a.kind WHEN 'customer' THEN 0 WHEN 'merchant' THEN 1 WHEN 'fee' THEN 2 ELSE 3 END";

export interface Booking {
  readonly messageId: string;
  readonly payment: PaymentState;
  readonly transactionId: string;
  readonly entryIds: { readonly debit: string; readonly credit: string };
}

/**
 * Books an automatic payment in one statement, its parts chained so that what doesn't touch an account comes first: the
 * accounts are locked last, in the one order that all writers use (kind rank, id), so a busy account is held for the
 * posting and the commit only. The hold is let go before the debit, or the account would look overdrawn.
 */
export async function bookPayment(tx: Tx, booking: Booking, event: OutboxEvent): Promise<void> {
  const { payment } = booking;
  await tx.run(
    {
      name: "book_payment",
      text: `
      WITH transaction AS (
        INSERT INTO remit.ledger_transactions (id, message_id, payment_id, kind)
        VALUES ($1, $2, $3, 'payment')
        RETURNING id
      ), event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        SELECT $4, $5, $6, $7, $8, $9, $10 FROM transaction
        RETURNING aggregate_version
      ), payment AS (
        UPDATE remit.payments
           SET status = 'settled', captured_amount = amount, version = event.aggregate_version,
               updated_at = clock_timestamp(), settled_at = clock_timestamp()
          FROM event
         WHERE id = $3
        RETURNING id, source, destination, amount, currency
      ), locked AS MATERIALIZED (
        SELECT a.id
          FROM payment p
          JOIN remit.accounts a ON a.id IN (p.source, p.destination)
         ORDER BY ${ACCOUNT_RANK}, a.id
           FOR NO KEY UPDATE OF a
      ), released AS (
        UPDATE remit.holds h
           SET remaining = 0
         WHERE h.payment_id = $3 AND h.refund_id IS NULL AND (SELECT count(*) FROM locked) = 2
        RETURNING h.payment_id
      )
      INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
      SELECT entry.id, $1, entry.account_id, entry.direction, p.amount, p.currency
        FROM released
        JOIN payment p ON p.id = released.payment_id
       CROSS JOIN LATERAL (VALUES ($11::uuid, p.source, 'debit'), ($12::uuid, p.destination, 'credit')) entry (id, account_id, direction)`,
    },
    [
      booking.transactionId,
      booking.messageId,
      payment.paymentId,
      ...eventValues(event),
      booking.entryIds.debit,
      booking.entryIds.credit,
    ],
  );
}

/** One side gives, the other takes; the hold that had reserved it lets it go. */
export interface Transfer {
  readonly transactionId: string;
  readonly messageId: string;
  readonly paymentId: string;
  readonly kind: "capture" | "refund";
  /** Of the capture or refund. */
  readonly partId: string;
  readonly amount: bigint;
  readonly currency: string;
  readonly debited: string;
  readonly credited: string;
  readonly entryIds: { readonly debit: string; readonly credit: string };
}

/** Books a capture or a refund; what it does to payment, capture or refund stands in statements before, the accounts come last. */
export async function postTransfer(tx: Tx, transfer: Transfer): Promise<void> {
  await tx.run({ name: `post_${transfer.kind}`, text: POST_TRANSFER[transfer.kind] }, [
    transfer.transactionId,
    transfer.messageId,
    transfer.paymentId,
    transfer.partId,
    transfer.debited,
    transfer.credited,
    transfer.amount,
    transfer.currency,
    transfer.entryIds.debit,
    transfer.entryIds.credit,
  ]);
}

const POST_TRANSFER = {
  capture: postTransferText({
    partColumn: "capture_id",
    hold: "h.payment_id = $3 AND h.refund_id IS NULL",
  }),
  refund: postTransferText({ partColumn: "refund_id", hold: "h.refund_id = $4" }),
};

function postTransferText({
  partColumn,
  hold,
}: {
  partColumn: "capture_id" | "refund_id";
  hold: string;
}): string {
  return `
      WITH transaction AS (
        INSERT INTO remit.ledger_transactions (id, message_id, payment_id, ${partColumn}, kind)
        VALUES ($1, $2, $3, $4, '${partColumn.replace("_id", "")}')
        RETURNING id
      ), locked AS MATERIALIZED (
        SELECT a.id
          FROM transaction
          JOIN remit.accounts a ON a.id IN ($5, $6)
         ORDER BY ${ACCOUNT_RANK}, a.id
           FOR NO KEY UPDATE OF a
      ), released AS (
        UPDATE remit.holds h
           SET remaining = h.remaining - $7
         WHERE ${hold} AND (SELECT count(*) FROM locked) = 2
        RETURNING h.id
      )
      INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
      SELECT entry.id, $1, entry.account_id, entry.direction, $7, $8
        FROM released
       CROSS JOIN (VALUES ($9::uuid, $5, 'debit'), ($10::uuid, $6, 'credit')) entry (id, account_id, direction)`;
}
