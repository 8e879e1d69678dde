import { UUID_PATTERN } from "../domain/ids.ts";

/**
 * Which rows are looked at. Full: all. Recent: the payments that something happened to within the time, with all that
 * belongs to each, and their accounts; what none of Remit's events leads to is seen by a full look alone.
 */
export type Scope =
  { readonly kind: "full" } | { readonly kind: "recent"; readonly seconds: number };

/** Completes an invariant's text for a scope. */
export function scoped(text: string, scope: Scope): string {
  if (scope.kind === "full") {
    return text.replace(
      SOURCE,
      (_, name: string) => `remit.${name === "open_holds" ? "holds" : name}`,
    );
  }
  return `WITH ${recentSources(scope.seconds)}\n${text.replace(SOURCE, (_, name: string) => `recent_${name}`)}`;
}

const SOURCE = /\{([a-z_]+)\}/g;

/**
 * Each is found through an index, so that a look at minutes costs the same however much there is; the entries of a hot
 * account are not. Open holds are those of payments and refunds that are under way.
 */
function recentSources(seconds: number): string {
  // Of the transaction's start: a volatile clock could not be looked up in an index.
  const since = `now() - ${Math.ceil(seconds)} * interval '1 second'`;
  return `
    recent_inbox AS MATERIALIZED (
      SELECT * FROM remit.inbox WHERE received_at >= ${since}
    ), changed AS MATERIALIZED (
      SELECT DISTINCT aggregate_type, aggregate_id
        FROM (SELECT aggregate_type, aggregate_id FROM remit.outbox WHERE created_at >= ${since}
               UNION ALL
              SELECT o.aggregate_type, o.aggregate_id FROM recent_inbox i JOIN remit.outbox o ON o.id = i.message_id) touched
    ), recent_outbox AS MATERIALIZED (
      SELECT o.* FROM changed JOIN remit.outbox o USING (aggregate_type, aggregate_id)
    ), recent_outbox_heads AS MATERIALIZED (
      SELECT h.* FROM changed JOIN remit.outbox_heads h USING (aggregate_type, aggregate_id)
    ), changed_id AS MATERIALIZED (
      SELECT aggregate_type, CASE WHEN aggregate_id ~ '${UUID_PATTERN.source}' THEN aggregate_id::uuid END AS id
        FROM changed
       WHERE aggregate_type IN ('payment', 'refund')
    ), recent_payments AS MATERIALIZED (
      SELECT p.*
        FROM remit.payments p
       WHERE p.id IN (SELECT id FROM changed_id WHERE aggregate_type = 'payment'
                       UNION
                      SELECT r.payment_id FROM changed_id c JOIN remit.refunds r ON r.id = c.id WHERE c.aggregate_type = 'refund'
                       UNION
                      SELECT t.payment_id FROM recent_inbox i JOIN remit.ledger_transactions t ON t.message_id = i.message_id)
    ), recent_captures AS MATERIALIZED (
      SELECT c.* FROM recent_payments p JOIN remit.captures c ON c.payment_id = p.id
    ), recent_refunds AS MATERIALIZED (
      SELECT r.* FROM recent_payments p JOIN remit.refunds r ON r.payment_id = p.id
    ), recent_holds AS MATERIALIZED (
      SELECT h.* FROM recent_payments p JOIN remit.holds h ON h.payment_id = p.id AND h.refund_id IS NULL
       UNION ALL
      SELECT h.* FROM recent_refunds r JOIN remit.holds h ON h.refund_id = r.id
    ), recent_open_holds AS MATERIALIZED (
      SELECT h.*
        FROM remit.payments p
        JOIN remit.holds h ON h.payment_id = p.id AND h.refund_id IS NULL
       WHERE p.status IN ('pending', 'authorized', 'captured')
       UNION ALL
      SELECT h.* FROM remit.refunds r JOIN remit.holds h ON h.refund_id = r.id WHERE r.status = 'pending'
    ), recent_ledger_transactions AS MATERIALIZED (
      SELECT t.* FROM recent_payments p JOIN remit.ledger_transactions t ON t.payment_id = p.id
    ), recent_ledger_entries AS MATERIALIZED (
      SELECT e.* FROM recent_ledger_transactions t JOIN remit.ledger_entries e ON e.transaction_id = t.id
    ), recent_accounts AS MATERIALIZED (
      SELECT a.* FROM remit.accounts a
       WHERE a.id IN (SELECT source FROM recent_payments UNION SELECT destination FROM recent_payments)
    ), recent_idempotency_keys AS MATERIALIZED (
      SELECT k.*
        FROM remit.idempotency_keys k
        JOIN (SELECT merchant, idempotency_key FROM recent_payments
               UNION
              SELECT p.merchant, c.idempotency_key FROM recent_payments p JOIN recent_captures c ON c.payment_id = p.id
               UNION
              SELECT p.merchant, r.idempotency_key FROM recent_payments p JOIN recent_refunds r ON r.payment_id = p.id) used
          ON used.merchant = k.merchant AND used.idempotency_key = k.key
    )`;
}
