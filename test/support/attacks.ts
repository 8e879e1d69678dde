import { randomUUID } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import type { Statement } from "./attempt.ts";

/** Rows that a program with the application's role could write beside our code. */

/** A ledger transaction with these entries. */
export function transactionRows(
  of: { payment: string; kind?: "capture" | "refund"; part?: string },
  ...entries: [account: string, direction: string, amount: number][]
): Statement[] {
  const id = uuidv7();
  const { payment, kind = "payment", part = null } = of;
  return [
    [
      `INSERT INTO remit.ledger_transactions (id, message_id, payment_id, capture_id, refund_id, kind)
       VALUES ($1, $2, $3, $4, $5, $6)`,
      id,
      randomUUID(),
      payment,
      kind === "capture" ? part : null,
      kind === "refund" ? part : null,
      kind,
    ],
    ...entries.map((entry): Statement => entryRow(id, ...entry)),
  ];
}

/** One more entry of a ledger transaction. */
export function entryRow(
  transactionId: string,
  account: string,
  direction: string,
  amount: number,
): Statement {
  return [
    `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
     VALUES ($1, $2, $3, $4, $5, 'EUR')`,
    uuidv7(),
    transactionId,
    account,
    direction,
    amount,
  ];
}

/** An event, numbered by the database. */
export function eventRow(aggregate: "payment" | "refund", id: string, type: string): Statement {
  return [
    `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
     VALUES ($1, $2, $3, $4, '{}')`,
    uuidv7(),
    aggregate,
    id,
    type,
  ];
}

/** A refund with its hold and its event. */
export function refundRows({
  payment,
  account,
  amount,
}: {
  payment: string;
  account: string;
  amount: number;
}): Statement[] {
  const id = uuidv7();
  return [
    [
      `INSERT INTO remit.refunds (id, payment_id, idempotency_key, amount, currency)
       VALUES ($1, $2, 'attack', $3, 'EUR')`,
      id,
      payment,
      amount,
    ],
    [
      `INSERT INTO remit.holds (id, account_id, payment_id, refund_id, amount)
       VALUES ($1, $2, $3, $4, $5)`,
      uuidv7(),
      account,
      payment,
      id,
      amount,
    ],
    eventRow("refund", id, "refund.created"),
  ];
}

/** An automatic payment with its hold and its event. */
export function paymentRows({
  key,
  from,
  to,
  amount,
}: {
  key: string;
  from: string;
  to: string;
  amount: number;
}): Statement[] {
  const id = uuidv7();
  return [
    [
      `INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, version)
       VALUES ($1, 'default', $2, $3, $4, $5, 'EUR', 'automatic', 'pending', 1)`,
      id,
      key,
      from,
      to,
      amount,
    ],
    [
      "INSERT INTO remit.holds (id, account_id, payment_id, amount) VALUES ($1, $2, $3, $4)",
      uuidv7(),
      from,
      id,
      amount,
    ],
    eventRow("payment", id, "payment.created"),
  ];
}
