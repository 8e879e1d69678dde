import { v7 as uuidv7 } from "uuid";
import type { Statement } from "./attempt.ts";

/** Rows that a program with the application's role could write beside our code. */

/** A ledger transaction with these entries: for the event that waits for it unless another message is given. */
export function transactionRows(
  of: { payment: string; kind?: "capture" | "refund"; part?: string; message?: string },
  ...entries: [account: string, direction: string, amount: number][]
): Statement[] {
  const id = uuidv7();
  const { payment, kind = "payment", part = null, message = null } = of;
  return [
    [
      `INSERT INTO remit.ledger_transactions (id, message_id, payment_id, capture_id, refund_id, kind)
       SELECT $1, coalesce($2, (SELECT id FROM remit.outbox
                                 WHERE aggregate_id = $3 AND type = $4
                                   AND ($6::uuid IS NULL OR payload #>> '{data,captureId}' = $6::text)), gen_random_uuid()),
              $5, $6, $7, $8`,
      id,
      message,
      kind === "refund" ? part : payment,
      { payment: "payment.created", capture: "payment.captured", refund: "refund.created" }[kind],
      payment,
      kind === "capture" ? part : null,
      kind === "refund" ? part : null,
      kind,
    ],
    ...entries.map((entry): Statement => entryRow(id, ...entry)),
  ];
}

/** A key with the decision that this was made under it. */
export function keyRow(
  key: string,
  {
    operation,
    payment,
    part,
  }: { operation: "pay" | "capture" | "void" | "refund"; payment: string; part?: string },
): Statement {
  return [
    `INSERT INTO remit.idempotency_keys (merchant, key, operation, fingerprint, request_id, outcome)
     VALUES ('default', $1, $2, 'forged', 'forged', $3)`,
    key,
    operation,
    JSON.stringify({ decision: "accepted", paymentId: payment, partId: part }),
  ];
}

/** A capture with its key, and nothing else that belongs to it. */
export function captureRows({
  key,
  payment,
  amount,
  id = uuidv7(),
}: {
  key: string;
  payment: string;
  amount: number;
  id?: string;
}): Statement[] {
  return [
    keyRow(key, { operation: "capture", payment, part: id }),
    [
      "INSERT INTO remit.captures (id, payment_id, idempotency_key, amount, final) VALUES ($1, $2, $3, $4, false)",
      id,
      payment,
      key,
      amount,
    ],
  ];
}

/** All that the booking of a capture changes beside the ledger. */
export function settledCapture(
  { payment, part }: { payment: string; part: string },
  amount: number,
): Statement[] {
  return [
    ["UPDATE remit.captures SET status = 'settled', settled_at = now() WHERE id = $1", part],
    ["UPDATE remit.holds SET remaining = remaining - $2 WHERE payment_id = $1", payment, amount],
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

/** A refund with its key, its hold and its event. */
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
    keyRow("attack", { operation: "refund", payment, part: id }),
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

/** An automatic payment with its key, its hold and its event. */
export function paymentRows({
  key,
  from,
  to,
  amount,
  currency = "EUR",
}: {
  key: string;
  from: string;
  to: string;
  amount: number;
  currency?: string;
}): Statement[] {
  const id = uuidv7();
  return [
    keyRow(key, { operation: "pay", payment: id }),
    [
      `INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, version)
       VALUES ($1, 'default', $2, $3, $4, $5, $6, 'automatic', 'pending', 1)`,
      id,
      key,
      from,
      to,
      amount,
      currency,
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
