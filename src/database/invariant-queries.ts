import { UUID_PATTERN } from "../domain/ids.ts";

/** The ten invariants of docs/architecture.md. */
export interface Invariant {
  readonly number: number;
  readonly name: string;
  /** One row a violation, in words that name it. `{payments}` is what is looked at, `remit.payments` all there are. */
  readonly violations: string;
  /** Whether $1 is the grace time in seconds. */
  readonly usesGrace: boolean;
}

/** What an accepted capture's or refund's key says that it made; null where it names nothing, so that no word ends the look. */
const NAMED_PART = `CASE WHEN k.outcome ->> 'partId' ~ '${UUID_PATTERN.source}' THEN (k.outcome ->> 'partId')::uuid END`;

export const INVARIANTS: readonly Invariant[] = [
  {
    number: 1,
    name: "debits equal credits",
    usesGrace: false,
    violations: `
      SELECT format('ledger transaction %s is off by %s %s', transaction_id, sum(signed), currency) AS what
        FROM (SELECT transaction_id, currency, CASE direction WHEN 'credit' THEN amount::numeric ELSE -amount::numeric END AS signed
                FROM {ledger_entries}) entries
       GROUP BY transaction_id, currency
      HAVING sum(signed) <> 0
      UNION ALL
      SELECT format('all accounts in %s sum to %s', currency, sum(posted))
        FROM remit.accounts
       GROUP BY currency
      HAVING sum(posted) <> 0
      UNION ALL
      SELECT format('ledger transaction %s has no entries', t.id)
        FROM {ledger_transactions} t
       WHERE NOT EXISTS (SELECT FROM remit.ledger_entries e WHERE e.transaction_id = t.id)`,
  },
  {
    number: 2,
    name: "balances follow from entries",
    usesGrace: false,
    violations: `
      SELECT format('entry %s of account %s: version %s after %s, balance %s after %s and %s',
                    e.id, e.account_id, e.account_version, coalesce(before.account_version, 0), e.balance_after,
                    coalesce(before.balance_after, 0), signed.amount) AS what
        FROM {ledger_entries} e
       CROSS JOIN LATERAL (SELECT CASE e.direction WHEN 'credit' THEN e.amount ELSE -e.amount END AS amount) signed
        LEFT JOIN remit.ledger_entries before
               ON before.account_id = e.account_id AND before.account_version = e.account_version - 1
       WHERE e.account_version <> coalesce(before.account_version, 0) + 1
          OR e.balance_after <> coalesce(before.balance_after, 0) + signed.amount
      UNION ALL
      SELECT format('account %s has %s entries of version %s', account_id, count(*), account_version)
        FROM {ledger_entries}
       GROUP BY account_id, account_version
      HAVING count(*) > 1
      UNION ALL
      SELECT format('account %s has posted %s at version %s, its last entry says %s at %s',
                    a.id, a.posted, a.version, coalesce(last.balance_after, 0), coalesce(last.account_version, 0))
        FROM {accounts} a
        LEFT JOIN LATERAL (SELECT balance_after, account_version
                             FROM remit.ledger_entries e
                            WHERE e.account_id = a.id
                            ORDER BY account_version DESC
                            LIMIT 1) last ON true
       WHERE a.posted <> coalesce(last.balance_after, 0) OR a.version <> coalesce(last.account_version, 0)`,
  },
  {
    number: 3,
    name: "held follows from open holds",
    usesGrace: false,
    violations: `
      SELECT format('account %s holds %s, its holds have %s left', a.id, a.held, coalesce(h.remaining, 0)) AS what
        FROM {accounts} a
        LEFT JOIN (SELECT account_id, sum(remaining) AS remaining FROM {open_holds} GROUP BY account_id) h ON h.account_id = a.id
       WHERE a.held <> coalesce(h.remaining, 0)
      UNION ALL
      SELECT format('hold %s is open for payment %s, which is %s', h.id, p.id, p.status)
        FROM {holds} h
        JOIN remit.payments p ON p.id = h.payment_id
       WHERE h.status = 'open' AND h.refund_id IS NULL AND p.status NOT IN ('pending', 'authorized', 'captured')
      UNION ALL
      SELECT format('hold %s is open for refund %s, which is %s', h.id, r.id, r.status)
        FROM {holds} h
        JOIN remit.refunds r ON r.id = h.refund_id
       WHERE h.status = 'open' AND r.status <> 'pending'
      UNION ALL
      SELECT format('payment %s is %s and holds nothing', p.id, p.status)
        FROM {payments} p
       WHERE p.status IN ('pending', 'authorized', 'captured')
         AND NOT EXISTS (SELECT FROM remit.holds h WHERE h.payment_id = p.id AND h.refund_id IS NULL AND h.status = 'open')
      UNION ALL
      SELECT format('payment %s of %s is %s and holds %s on %s, expected %s', p.id, p.amount, p.status, coalesce(h.remaining, 0), p.source, expected.held)
        FROM {payments} p
        LEFT JOIN remit.holds h ON h.payment_id = p.id AND h.refund_id IS NULL AND h.account_id = p.source
       CROSS JOIN LATERAL (SELECT CASE WHEN p.status = 'pending' THEN p.amount
                                       WHEN p.status = 'authorized' THEN p.amount - coalesce(sum(c.amount) FILTER (WHERE c.status = 'settled'), 0)
                                       WHEN p.status = 'captured' THEN coalesce(sum(c.amount) FILTER (WHERE c.status = 'pending'), 0)
                                       ELSE 0 END AS held
                             FROM remit.captures c
                            WHERE c.payment_id = p.id) expected
       WHERE p.status IN ('pending', 'authorized', 'captured') AND coalesce(h.remaining, 0) <> expected.held
      UNION ALL
      SELECT format('refund %s of %s is %s and holds %s on %s', r.id, r.amount, r.status, coalesce(h.remaining, 0), p.destination)
        FROM {refunds} r
        JOIN remit.payments p ON p.id = r.payment_id
        LEFT JOIN remit.holds h ON h.refund_id = r.id AND h.account_id = p.destination
       WHERE coalesce(h.remaining, 0) <> CASE r.status WHEN 'pending' THEN r.amount ELSE 0 END`,
  },
  {
    number: 4,
    name: "refunded ≤ captured ≤ amount",
    usesGrace: false,
    violations: `
      SELECT format('payment %s: amount %s, captured %s of %s, refunded %s of %s',
                    p.id, p.amount, p.captured_amount, coalesce(c.sum, p.captured_amount), p.refunded_amount, coalesce(r.sum, 0)) AS what
        FROM {payments} p
        LEFT JOIN (SELECT payment_id, sum(amount) AS sum FROM {refunds} WHERE status <> 'failed' GROUP BY payment_id) r ON r.payment_id = p.id
        LEFT JOIN (SELECT payment_id, sum(amount) AS sum FROM {captures} WHERE status <> 'failed' GROUP BY payment_id) c ON c.payment_id = p.id
       WHERE NOT (0 <= p.refunded_amount AND p.refunded_amount <= p.captured_amount AND p.captured_amount <= p.amount)
          OR p.refunded_amount <> coalesce(r.sum, 0)
          OR p.captured_amount <> CASE WHEN p.capture = 'manual' THEN coalesce(c.sum, 0)
                                       WHEN p.status = 'settled' THEN p.amount ELSE 0 END
      UNION ALL
      SELECT format('capture %s is of payment %s, which is captured at once', c.id, p.id)
        FROM {captures} c
        JOIN remit.payments p ON p.id = c.payment_id
       WHERE p.capture = 'automatic'
      UNION ALL
      SELECT format('payment %s has %s captures on their way', payment_id, count(*))
        FROM {captures}
       WHERE status = 'pending'
       GROUP BY payment_id
      HAVING count(*) > 1
      UNION ALL
      SELECT format('payment %s is authorized and %s was its final capture', p.id, c.id)
        FROM {captures} c
        JOIN remit.payments p ON p.id = c.payment_id
       WHERE c.final AND c.status <> 'failed' AND p.status = 'authorized'
      UNION ALL
      SELECT format('refund %s is in %s, its payment %s in %s', r.id, r.currency, p.id, p.currency)
        FROM {refunds} r
        JOIN remit.payments p ON p.id = r.payment_id
       WHERE r.currency <> p.currency`,
  },
  {
    number: 5,
    name: "nothing is overdrawn",
    usesGrace: false,
    violations: `
      SELECT format('account %s has %s available', id, posted - held + overdraft) AS what
        FROM {accounts}
       WHERE kind <> 'world' AND posted - held + overdraft < 0`,
  },
  {
    number: 6,
    name: "one payment a key, one event a change",
    usesGrace: false,
    violations: `
      SELECT format('%s payments for key %s of %s', count(*), idempotency_key, merchant) AS what
        FROM {payments}
       GROUP BY merchant, idempotency_key
      HAVING count(*) > 1
      UNION ALL
      SELECT format('%s ledger transactions for message %s and payment %s', count(*), message_id, payment_id)
        FROM {ledger_transactions}
       GROUP BY message_id, payment_id
      HAVING count(*) > 1
      UNION ALL
      SELECT format('%s %s: %s events from %s to %s, expected %s to %s', h.aggregate_type, h.aggregate_id,
                    coalesce(o.events, 0), o.first, o.last, h.purged_version + 1, h.last_version)
        FROM {outbox_heads} h
        LEFT JOIN (SELECT aggregate_type, aggregate_id, count(*) AS events, min(aggregate_version) AS first, max(aggregate_version) AS last
                     FROM {outbox}
                    GROUP BY aggregate_type, aggregate_id) o USING (aggregate_type, aggregate_id)
       WHERE coalesce(o.events, 0) <> h.last_version - h.purged_version
          OR (o.events > 0 AND (o.last <> h.last_version OR o.first <> h.purged_version + 1))
      UNION ALL
      SELECT format('payment %s is at version %s and has %s events', p.id, p.version, coalesce(h.last_version, 0))
        FROM {payments} p
        LEFT JOIN remit.outbox_heads h ON h.aggregate_type = 'payment' AND h.aggregate_id = p.id::text
       WHERE p.version <> coalesce(h.last_version, 0)
      UNION ALL
      SELECT format('refund %s is %s and has %s events', r.id, r.status, coalesce(h.last_version, 0))
        FROM {refunds} r
        LEFT JOIN remit.outbox_heads h ON h.aggregate_type = 'refund' AND h.aggregate_id = r.id::text
       WHERE coalesce(h.last_version, 0) <> CASE r.status WHEN 'pending' THEN 1 ELSE 2 END`,
  },
  {
    number: 7,
    name: "a status is where its events lead",
    usesGrace: false,
    violations: `
      SELECT format('payment %s is %s, its last event is %s', p.id, p.status, last.type) AS what
        FROM {payments} p
        JOIN LATERAL (SELECT o.type
                        FROM remit.outbox o
                       WHERE o.aggregate_type = 'payment' AND o.aggregate_id = p.id::text
                       ORDER BY o.aggregate_version DESC
                       LIMIT 1) last ON true
       WHERE NOT CASE p.status
               WHEN 'pending' THEN last.type = 'payment.created'
               WHEN 'authorized' THEN last.type IN ('payment.authorized', 'payment.captured', 'payment.capture_failed')
               WHEN 'captured' THEN last.type IN ('payment.captured', 'payment.released', 'payment.capture_failed')
               ELSE last.type = 'payment.' || p.status END
      UNION ALL
      SELECT format('refund %s is %s, its last event is %s', r.id, r.status, last.type)
        FROM {refunds} r
        JOIN LATERAL (SELECT o.type
                        FROM remit.outbox o
                       WHERE o.aggregate_type = 'refund' AND o.aggregate_id = r.id::text
                       ORDER BY o.aggregate_version DESC
                       LIMIT 1) last ON true
       WHERE last.type <> CASE r.status WHEN 'pending' THEN 'refund.created' ELSE 'refund.' || r.status END
      UNION ALL
      SELECT format('payment %s is captured and nothing of it is on its way', p.id)
        FROM {payments} p
       WHERE p.status = 'captured'
         AND NOT EXISTS (SELECT FROM remit.captures c WHERE c.payment_id = p.id AND c.status = 'pending')
      UNION ALL
      SELECT format('payment %s has an event after its end', o.aggregate_id)
        FROM {outbox} o
       WHERE o.aggregate_type = 'payment'
         AND o.type IN ('payment.settled', 'payment.failed', 'payment.cancelled', 'payment.voided', 'payment.expired')
         AND EXISTS (SELECT FROM remit.outbox later
                      WHERE later.aggregate_type = o.aggregate_type AND later.aggregate_id = o.aggregate_id
                        AND later.aggregate_version > o.aggregate_version)
      UNION ALL
      SELECT format('payment %s is settled and has no ledger transaction', p.id)
        FROM {payments} p
       WHERE p.status = 'settled'
         AND NOT EXISTS (SELECT FROM remit.ledger_transactions t WHERE t.payment_id = p.id AND t.kind IN ('payment', 'capture'))`,
  },
  {
    number: 8,
    name: "published means the broker's receipt",
    usesGrace: false,
    violations: `
      SELECT format('outbox row %s is PUBLISHED without a receipt', id) AS what
        FROM {outbox}
       WHERE status = 'PUBLISHED' AND broker_message_id IS NULL`,
  },
  {
    number: 9,
    name: "conservation: booked ↔ event ↔ inbox ↔ ledger",
    usesGrace: true,
    violations: `
      SELECT format('event %s of payment %s was published and never came in', o.id, o.aggregate_id) AS what
        FROM {outbox} o
       WHERE (o.type = 'payment.created' AND o.headers ->> 'capture' = 'automatic' OR o.type IN ('payment.captured', 'refund.created'))
         AND o.status = 'PUBLISHED'
         AND o.published_at < clock_timestamp() - $1 * interval '1 second'
         AND NOT EXISTS (SELECT FROM remit.inbox i WHERE i.consumer = 'ledger' AND i.message_id = o.id)
         AND NOT EXISTS (SELECT FROM remit.ledger_transactions t WHERE t.message_id = o.id)
      UNION ALL
      SELECT format('%s %s is pending and %s', due.kind, due.id, CASE WHEN o.id IS NULL THEN 'its event is gone' ELSE 'its event ' || o.id || ' was skipped' END)
        FROM (SELECT 'payment' AS kind, p.id, 'payment' AS aggregate_type, p.id AS aggregate_id, 'payment.created' AS type, NULL::uuid AS capture_id
                FROM {payments} p WHERE p.status = 'pending'
               UNION ALL
              SELECT 'capture', c.id, 'payment', c.payment_id, 'payment.captured', c.id FROM {captures} c WHERE c.status = 'pending'
               UNION ALL
              SELECT 'refund', r.id, 'refund', r.id, 'refund.created', NULL FROM {refunds} r WHERE r.status = 'pending') due
        LEFT JOIN remit.outbox o
               ON o.aggregate_type = due.aggregate_type AND o.aggregate_id = due.aggregate_id::text AND o.type = due.type
              AND (due.capture_id IS NULL OR o.payload #>> '{data,captureId}' = due.capture_id::text)
       WHERE o.id IS NULL OR o.status = 'SKIPPED'
      UNION ALL
      SELECT format('payment %s is authorized and was to expire at %s', p.id, p.expires_at)
        FROM remit.payments p
       WHERE p.status = 'authorized' AND p.expires_at < clock_timestamp() - ($1 + 1800) * interval '1 second'
      UNION ALL
      SELECT format('message %s is booked in the inbox and not in the ledger', i.message_id)
        FROM {inbox} i
       WHERE i.consumer = 'ledger' AND i.outcome = 'booked'
         AND NOT EXISTS (SELECT FROM remit.ledger_transactions t WHERE t.message_id = i.message_id)
      UNION ALL
      SELECT format('message %s is refused in the inbox and booked in the ledger', i.message_id)
        FROM {inbox} i
        JOIN remit.ledger_transactions t ON t.message_id = i.message_id
       WHERE i.consumer = 'ledger' AND i.outcome = 'refused'
      UNION ALL
      SELECT format('ledger transaction %s stands for message %s, which is no event of its %s', t.id, t.message_id, t.kind)
        FROM {ledger_transactions} t
        LEFT JOIN remit.outbox o ON o.id = t.message_id
        LEFT JOIN remit.outbox_heads h
               ON h.aggregate_type = CASE t.kind WHEN 'refund' THEN 'refund' ELSE 'payment' END
              AND h.aggregate_id = CASE t.kind WHEN 'refund' THEN t.refund_id ELSE t.payment_id END::text
       WHERE o.id IS NULL AND coalesce(h.purged_version, 0) = 0
          OR (o.type, o.aggregate_id) <> (CASE t.kind WHEN 'payment' THEN 'payment.created' WHEN 'capture' THEN 'payment.captured' ELSE 'refund.created' END,
                                          CASE t.kind WHEN 'refund' THEN t.refund_id ELSE t.payment_id END::text)
          OR t.kind = 'capture' AND o.type = 'payment.captured' AND o.payload #>> '{data,captureId}' IS DISTINCT FROM t.capture_id::text
      UNION ALL
      SELECT format('payment %s is %s and ledger transaction %s moved its money', p.id, p.status, t.id)
        FROM {ledger_transactions} t
        JOIN remit.payments p ON p.id = t.payment_id
       WHERE t.kind = 'payment' AND p.status <> 'settled'
      UNION ALL
      SELECT format('payment %s of %s moved %s out of %s and %s into %s', p.id, p.amount, m.debited, p.source, m.credited, p.destination)
        FROM {payments} p
        JOIN (SELECT t.payment_id,
                     sum(e.amount) FILTER (WHERE e.direction = 'debit' AND e.account_id = s.source) AS debited,
                     sum(e.amount) FILTER (WHERE e.direction = 'credit' AND e.account_id = s.destination) AS credited,
                     count(*) AS entries
                FROM {ledger_transactions} t
                JOIN {payments} s ON s.id = t.payment_id
                JOIN {ledger_entries} e ON e.transaction_id = t.id
               WHERE t.kind = 'payment'
               GROUP BY t.payment_id) m ON m.payment_id = p.id
       WHERE m.debited IS DISTINCT FROM p.amount OR m.credited IS DISTINCT FROM p.amount OR m.entries <> 2
      UNION ALL
      SELECT format('%s %s of %s is %s, its ledger transaction moved %s out and %s in', part.kind, part.id, part.amount, part.status,
                    coalesce(m.debited, 0), coalesce(m.credited, 0))
        FROM (SELECT 'capture' AS kind, c.id, c.amount, c.status, p.source AS debited, p.destination AS credited
                FROM {captures} c
                JOIN {payments} p ON p.id = c.payment_id
               UNION ALL
              SELECT 'refund', r.id, r.amount, r.status, p.destination, p.source
                FROM {refunds} r
                JOIN {payments} p ON p.id = r.payment_id) part
        LEFT JOIN {ledger_transactions} t ON coalesce(t.capture_id, t.refund_id) = part.id
        LEFT JOIN LATERAL (SELECT sum(e.amount) FILTER (WHERE e.direction = 'debit' AND e.account_id = part.debited) AS debited,
                                  sum(e.amount) FILTER (WHERE e.direction = 'credit' AND e.account_id = part.credited) AS credited,
                                  count(*) AS entries
                             FROM remit.ledger_entries e
                            WHERE e.transaction_id = t.id) m ON true
       WHERE CASE part.status WHEN 'settled' THEN m.debited IS DISTINCT FROM part.amount OR m.credited IS DISTINCT FROM part.amount OR m.entries <> 2
                              ELSE t.id IS NOT NULL END
      UNION ALL
      SELECT format('event %s was refused (%s) and its payment %s is still pending', i.message_id, i.error, p.id)
        FROM {inbox} i
        JOIN remit.outbox o ON o.id = i.message_id
        JOIN {payments} p ON p.id::text = o.aggregate_id
       WHERE i.consumer = 'ledger' AND i.outcome = 'refused' AND o.type = 'payment.created' AND p.status = 'pending'
      UNION ALL
      SELECT format('event %s was refused (%s) and its %s is still pending', i.message_id, i.error, coalesce('refund ' || r.id, 'capture ' || c.id))
        FROM {inbox} i
        JOIN remit.outbox o ON o.id = i.message_id
        LEFT JOIN {refunds} r ON o.type = 'refund.created' AND r.id::text = o.aggregate_id AND r.status = 'pending'
        LEFT JOIN {captures} c ON o.type = 'payment.captured' AND c.id::text = o.payload #>> '{data,captureId}' AND c.status = 'pending'
       WHERE i.consumer = 'ledger' AND i.outcome = 'refused' AND (r.id IS NOT NULL OR c.id IS NOT NULL)
      UNION ALL
      SELECT format('ledger transaction %s is a %s of payment %s, which is booked by %s', t.id, t.kind, p.id,
                    CASE p.capture WHEN 'manual' THEN 'its captures' ELSE 'itself' END)
        FROM {ledger_transactions} t
        JOIN remit.payments p ON p.id = t.payment_id
       WHERE t.kind = 'payment' AND p.capture = 'manual' OR t.kind = 'capture' AND p.capture = 'automatic'
      UNION ALL
      SELECT format('ledger transaction %s is a %s without the %s', t.id, t.kind, t.kind)
        FROM {ledger_transactions} t
        LEFT JOIN remit.captures c ON c.id = t.capture_id AND c.payment_id = t.payment_id AND c.status = 'settled'
        LEFT JOIN remit.refunds r ON r.id = t.refund_id AND r.payment_id = t.payment_id AND r.status = 'settled'
       WHERE t.kind = 'capture' AND c.id IS NULL OR t.kind = 'refund' AND r.id IS NULL`,
  },
  {
    number: 10,
    name: "a refused request leaves its key and nothing else",
    usesGrace: false,
    violations: `
      SELECT format('key %s of %s is refused and has payment %s', k.key, k.merchant, p.id) AS what
        FROM {idempotency_keys} k
        JOIN remit.payments p ON p.merchant = k.merchant AND p.idempotency_key = k.key
       WHERE k.outcome ->> 'decision' = 'refused'
      UNION ALL
      SELECT format('key %s of %s is accepted and has no payment', k.key, k.merchant)
        FROM {idempotency_keys} k
       WHERE k.operation = 'pay' AND k.outcome ->> 'decision' = 'accepted'
         AND NOT EXISTS (SELECT FROM remit.payments p
                          WHERE p.merchant = k.merchant AND p.idempotency_key = k.key
                            AND p.id::text = k.outcome ->> 'paymentId')
      UNION ALL
      SELECT format('key %s of %s is accepted and has no %s', k.key, k.merchant, k.operation)
        FROM {idempotency_keys} k
       WHERE k.operation IN ('capture', 'refund') AND k.outcome ->> 'decision' = 'accepted'
         AND NOT EXISTS (SELECT FROM remit.captures c JOIN remit.payments p ON p.id = c.payment_id
                          WHERE k.operation = 'capture' AND p.merchant = k.merchant AND c.idempotency_key = k.key
                            AND c.id = ${NAMED_PART} AND p.id::text = k.outcome ->> 'paymentId')
         AND NOT EXISTS (SELECT FROM remit.refunds r JOIN remit.payments p ON p.id = r.payment_id
                          WHERE k.operation = 'refund' AND p.merchant = k.merchant AND r.idempotency_key = k.key
                            AND r.id = ${NAMED_PART} AND p.id::text = k.outcome ->> 'paymentId')
      UNION ALL
      SELECT format('key %s of %s is an accepted void and payment %s is %s', k.key, k.merchant, p.id, p.status)
        FROM {idempotency_keys} k
        JOIN remit.payments p ON p.id::text = k.outcome ->> 'paymentId'
       WHERE k.operation = 'void' AND k.outcome ->> 'decision' = 'accepted' AND p.status IN ('pending', 'authorized')
      UNION ALL
      SELECT format('%s %s has no key that was accepted for it', part.kind, part.id)
        FROM (SELECT 'capture' AS kind, id, payment_id, idempotency_key FROM {captures}
               UNION ALL
              SELECT 'refund', id, payment_id, idempotency_key FROM {refunds}) part
        JOIN remit.payments p ON p.id = part.payment_id
       WHERE NOT EXISTS (SELECT FROM remit.idempotency_keys k
                          WHERE k.merchant = p.merchant AND k.key = part.idempotency_key AND k.operation = part.kind
                            AND k.outcome ->> 'decision' = 'accepted'
                            AND k.outcome ->> 'paymentId' = p.id::text AND k.outcome ->> 'partId' = part.id::text)
      UNION ALL
      SELECT format('payment %s has no key that was accepted for it', p.id)
        FROM {payments} p
       WHERE NOT EXISTS (SELECT FROM remit.idempotency_keys k
                          WHERE k.merchant = p.merchant AND k.key = p.idempotency_key AND k.operation = 'pay'
                            AND k.outcome ->> 'decision' = 'accepted' AND k.outcome ->> 'paymentId' = p.id::text)`,
  },
];

/** PENDING or DEAD for longer than $1 seconds. */
export const PENDING_BEYOND_GRACE = `
  SELECT count(*)
    FROM remit.outbox
   WHERE status IN ('PENDING', 'DEAD')
     AND created_at < clock_timestamp() - $1 * interval '1 second'`;
