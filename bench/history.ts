import { asReplica } from "./relay/events.ts";
import type { BenchDatabase } from "./relay/scene.ts";

/** Of these the last ones are minutes old, all others older than a day. */
export const RECENT_PAYMENTS = 10_000;
export const ACCOUNTS = 10_000;

/** `payments` settled payments, each of 1.00 EUR from the world to one of the accounts, as the flow would leave them. */
export async function filled(
  database: BenchDatabase,
  { payments }: { payments: number },
): Promise<BenchDatabase> {
  const { admin } = database;
  const id = (kind: number, n: string): string =>
    `('01900000-000${kind}-7000-8000-' || lpad(to_hex(${n}), 12, '0'))::uuid`;
  const at = `now() - CASE WHEN n > ${payments - RECENT_PAYMENTS} THEN interval '5 minutes' ELSE interval '2 days' END`;
  const series = `generate_series(1, ${payments}) n`;
  const account = `'a' || (n % ${ACCOUNTS})`;
  await asReplica(admin, [
    `INSERT INTO remit.accounts (id, kind, currency, posted, version)
     SELECT 'a' || k, 'customer', 'EUR', 100 * ${payments / ACCOUNTS}, ${payments / ACCOUNTS} FROM generate_series(0, ${ACCOUNTS - 1}) k
     UNION ALL SELECT 'world:EUR', 'world', 'EUR', -100::bigint * ${payments}, ${payments}`,
    `INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, captured_amount, version, created_at, updated_at, settled_at)
     SELECT ${id(1, "n")}, 'default', 'k' || n, 'world:EUR', ${account}, 100, 'EUR', 'automatic', 'settled', 100, 2, ${at}, ${at}, ${at} FROM ${series}`,
    `INSERT INTO remit.idempotency_keys (merchant, key, operation, fingerprint, request_id, outcome, created_at)
     SELECT 'default', 'k' || n, 'pay', repeat('0', 64), ${id(2, "n")}::text, jsonb_build_object('decision', 'accepted', 'paymentId', ${id(1, "n")}), ${at} FROM ${series}`,
    `INSERT INTO remit.holds (id, account_id, payment_id, amount, remaining, status, created_at, closed_at)
     SELECT ${id(3, "n")}, 'world:EUR', ${id(1, "n")}, 100, 0, 'closed', ${at}, ${at} FROM ${series}`,
    `INSERT INTO remit.outbox_heads (aggregate_type, aggregate_id, shard, last_version, purged_version)
     SELECT 'payment', ${id(1, "n")}::text, n & 63, 2, 0 FROM ${series}`,
    `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers, shard, status, broker_message_id, created_at, published_at)
     SELECT CASE v WHEN 1 THEN ${id(4, "n")} ELSE ${id(5, "n")} END, 'payment', ${id(1, "n")}::text, v,
            CASE v WHEN 1 THEN 'payment.created' ELSE 'payment.settled' END, '{"specversion": "1.0"}', '{"capture": "automatic"}',
            n & 63, 'PUBLISHED', 'sns', ${at}, ${at}
       FROM ${series} CROSS JOIN generate_series(1, 2) v`,
    `INSERT INTO remit.inbox (consumer, message_id, type, payload, received_at, processed_at, outcome)
     SELECT 'ledger', ${id(4, "n")}, 'payment.created', '{}', ${at}, ${at}, 'booked' FROM ${series}`,
    `INSERT INTO remit.ledger_transactions (id, message_id, payment_id, kind, xact, created_at)
     SELECT ${id(6, "n")}, ${id(4, "n")}, ${id(1, "n")}, 'payment', '1', ${at} FROM ${series}`,
    `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency, balance_after, account_version, created_at)
     SELECT ${id(7, "n")}, ${id(6, "n")}, 'world:EUR', 'debit', 100, 'EUR', -100::bigint * n, n, ${at} FROM ${series}
      UNION ALL
     SELECT ${id(8, "n")}, ${id(6, "n")}, ${account}, 'credit', 100, 'EUR', 100 * ((n - 1) / ${ACCOUNTS} + 1), (n - 1) / ${ACCOUNTS} + 1, ${at} FROM ${series}`,
  ]);
  await admin.query("VACUUM (ANALYZE)");
  return database;
}
