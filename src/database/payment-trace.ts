import type { Tx } from "./database.ts";

/** One message of a payment, or of a refund of it, on its way: outbox, broker, inbox. */
export interface MessageTrace {
  readonly messageId: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly type: string;
  readonly version: number;
  /** The capture that it tells of; null for all other events. */
  readonly captureId: string | null;
  readonly status: string;
  readonly claims: number;
  readonly attempts: number;
  /** Null: at once. */
  readonly nextAttemptAt: Date | null;
  readonly leaseUntil: Date | null;
  readonly lastError: string | null;
  readonly brokerMessageId: string | null;
  readonly createdAt: Date;
  readonly publishedAt: Date | null;
  /** Null where the ledger has not seen it, or its inbox row was purged. */
  readonly deliveries: number | null;
  readonly receivedAt: Date | null;
  readonly processedAt: Date | null;
  readonly outcome: string | null;
  readonly error: string | null;
}

export interface EntryTrace {
  readonly accountId: string;
  readonly direction: string;
  readonly amountMinor: bigint;
  readonly balanceAfterMinor: bigint;
}

export interface TransactionTrace {
  readonly transactionId: string;
  readonly messageId: string;
  readonly kind: string;
  readonly createdAt: Date;
  readonly entries: readonly EntryTrace[];
}

export interface PaymentTrace {
  readonly messages: readonly MessageTrace[];
  readonly transactions: readonly TransactionTrace[];
}

/** Joins a payment's way from its outbox rows to its ledger entries: its own events in their order, then its refunds'. */
export async function tracePayment(tx: Tx, paymentId: string): Promise<PaymentTrace> {
  const messages = await tx.run<Omit<MessageTrace, "version"> & { version: string }>(
    {
      name: "trace_messages",
      text: `WITH aggregate AS (
               SELECT 'payment' AS type, $1::uuid::text AS id
                UNION ALL
               SELECT 'refund', r.id::text FROM remit.refunds r WHERE r.payment_id = $1::uuid
             )
             SELECT o.id AS "messageId", o.aggregate_type AS "aggregateType", o.aggregate_id AS "aggregateId",
                    o.type, o.aggregate_version AS version, o.payload #>> '{data,captureId}' AS "captureId",
                    o.status, o.claims, o.attempts, nullif(o.next_attempt_at, '-infinity') AS "nextAttemptAt",
                    o.lease_until AS "leaseUntil", o.last_error AS "lastError", o.broker_message_id AS "brokerMessageId",
                    o.created_at AS "createdAt", o.published_at AS "publishedAt", i.deliveries,
                    i.received_at AS "receivedAt", i.processed_at AS "processedAt", i.outcome, i.error
               FROM aggregate a
               JOIN remit.outbox o ON o.aggregate_type = a.type AND o.aggregate_id = a.id
               LEFT JOIN remit.inbox i ON i.consumer = 'ledger' AND i.message_id = o.id
              ORDER BY o.aggregate_type, o.aggregate_id, o.aggregate_version`,
    },
    [paymentId],
  );
  const entries = await tx.run<EntryRow & Record<string, unknown>>(
    {
      name: "trace_entries",
      text: `SELECT t.id AS "transactionId", t.message_id AS "messageId", t.kind, t.created_at AS "createdAt",
                    e.account_id AS "accountId", e.direction, e.amount, e.balance_after AS "balanceAfter"
               FROM remit.ledger_transactions t
               JOIN remit.ledger_entries e ON e.transaction_id = t.id
              WHERE t.payment_id = $1
              ORDER BY t.id, e.direction DESC, e.account_id`,
    },
    [paymentId],
  );
  return {
    messages: messages.map((row) => ({ ...row, version: Number(row.version) })),
    transactions: [...Map.groupBy(entries, ({ transactionId }) => transactionId).values()].flatMap(
      toTransaction,
    ),
  };
}

interface EntryRow {
  transactionId: string;
  messageId: string;
  kind: string;
  createdAt: Date;
  accountId: string;
  direction: string;
  amount: string;
  balanceAfter: string;
}

function toTransaction(rows: readonly EntryRow[]): TransactionTrace[] {
  const [first] = rows;
  if (first === undefined) return [];
  const { transactionId, messageId, kind, createdAt } = first;
  const entries = rows.map(({ accountId, direction, amount, balanceAfter }) => ({
    accountId,
    direction,
    amountMinor: BigInt(amount),
    balanceAfterMinor: BigInt(balanceAfter),
  }));
  return [{ transactionId, messageId, kind, createdAt, entries }];
}
