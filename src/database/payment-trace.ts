import type { Database } from "./database.ts";

/** One message of a payment on its way: outbox, broker, inbox. */
export interface MessageTrace {
  readonly messageId: string;
  readonly type: string;
  readonly version: number;
  readonly status: string;
  readonly claims: number;
  readonly brokerMessageId: string | null;
  readonly createdAt: Date;
  readonly publishedAt: Date | null;
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

/** Joins a payment's way from its outbox rows to its ledger entries, in the order of the events. */
export async function tracePayment(database: Database, paymentId: string): Promise<PaymentTrace> {
  const [messages, entries] = await Promise.all([
    database.run<Omit<MessageTrace, "version"> & { version: string }>(
      {
        name: "trace_messages",
        text: `SELECT o.id AS "messageId", o.type, o.aggregate_version AS version, o.status, o.claims,
                      o.broker_message_id AS "brokerMessageId", o.created_at AS "createdAt", o.published_at AS "publishedAt",
                      i.received_at AS "receivedAt", i.processed_at AS "processedAt", i.outcome, i.error
                 FROM remit.outbox o
                 LEFT JOIN remit.inbox i ON i.consumer = 'ledger' AND i.message_id = o.id
                WHERE o.aggregate_type = 'payment'
                  AND o.aggregate_id = $1
                ORDER BY o.aggregate_version`,
      },
      [paymentId],
    ),
    database.run<EntryRow & Record<string, unknown>>(
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
    ),
  ]);
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
