-- SET CONSTRAINTS … IMMEDIATE lets a deferred trigger judge before its transaction is at its end. So every table that can
-- make a payment wrong has a judge of its own, and none leaves it to another: which row was written later can't be told from
-- its cmin, which a rolled-back savepoint turns into a number of another kind.
CREATE OR REPLACE FUNCTION remit.payments_touched() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  PERFORM payment_is_whole(new.payment_id);
  RETURN NULL;
END $$;
--> statement-breakpoint
-- The judge holds the payment's row: two transactions that are each right by themselves could otherwise end wrong together.
CREATE OR REPLACE FUNCTION remit.payment_is_whole(payment uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  p payments;
  held bigint;
  debited numeric;
  credited numeric;
  transactions bigint;
  sides bigint;
  entries bigint;
  settled bigint;
  pending bigint := 0;
  open bigint;
BEGIN
  SELECT * INTO p FROM payments WHERE id = payment FOR NO KEY UPDATE;
  SELECT coalesce(sum(remaining), 0) INTO held FROM holds WHERE payment_id = payment AND refund_id IS NULL AND account_id = p.source;
  IF p.capture = 'automatic' THEN
    settled := CASE p.status WHEN 'settled' THEN p.amount ELSE 0 END;
    open := CASE p.status WHEN 'pending' THEN p.amount ELSE 0 END;
  ELSE
    SELECT coalesce(sum(amount) FILTER (WHERE status = 'settled'), 0), coalesce(sum(amount) FILTER (WHERE status = 'pending'), 0)
      INTO settled, pending
      FROM captures
     WHERE payment_id = payment;
    open := CASE p.status WHEN 'authorized' THEN p.amount - settled WHEN 'captured' THEN pending ELSE 0 END;
  END IF;
  IF held <> open THEN
    RAISE EXCEPTION 'payment % is % and holds %, expected %', payment, p.status, held, open
      USING errcode = '23514', constraint = 'payments_hold_check';
  END IF;
  -- Captured counts what is booked or on its way. A payment that ended without money has neither; one that is captured
  -- waits for a capture, or it would wait for ever.
  IF p.captured_amount <> settled + pending
     OR p.refunded_amount > settled
     OR (p.status IN ('failed', 'cancelled', 'voided', 'expired') AND settled + pending <> 0)
     OR (p.status = 'captured' AND pending = 0)
     OR (p.status = 'settled' AND pending <> 0) THEN
    RAISE EXCEPTION 'payment % is %: captured %, refunded %, booked %, being booked %', payment, p.status, p.captured_amount, p.refunded_amount, settled, pending
      USING errcode = '23514', constraint = 'payments_captured_check';
  END IF;
  -- Each of its ledger transactions is one debit of the source and one credit of the destination, also where it should
  -- have none yet: any other entry would be somebody else's money riding along.
  SELECT coalesce(sum(e.amount) FILTER (WHERE e.direction = 'debit' AND e.account_id = p.source), 0),
         coalesce(sum(e.amount) FILTER (WHERE e.direction = 'credit' AND e.account_id = p.destination), 0),
         count(*) FILTER (WHERE (e.direction, e.account_id) IN (('debit', p.source), ('credit', p.destination))),
         count(DISTINCT t.id), count(*)
    INTO debited, credited, sides, transactions, entries
    FROM ledger_transactions t
    JOIN ledger_entries e ON e.transaction_id = t.id
   WHERE t.payment_id = payment AND t.kind IN ('payment', 'capture');
  IF debited <> settled OR credited <> settled OR entries <> 2 * transactions OR sides <> entries OR (p.status = 'settled' AND settled = 0) THEN
    RAISE EXCEPTION 'payment % is %, booked % out and % in, expected %', payment, p.status, debited, credited, settled
      USING errcode = '23514', constraint = 'payments_booked_check';
  END IF;
  IF p.capture = 'manual' AND EXISTS (
    SELECT FROM captures c
      LEFT JOIN ledger_transactions t ON t.capture_id = c.id AND t.payment_id = payment
      LEFT JOIN ledger_entries e ON e.transaction_id = t.id AND e.direction = 'debit'
     WHERE c.payment_id = payment AND coalesce(e.amount, 0) <> CASE c.status WHEN 'settled' THEN c.amount ELSE 0 END
  ) THEN
    RAISE EXCEPTION 'payment %: a capture and its ledger transaction differ', payment
      USING errcode = '23514', constraint = 'captures_booked_check';
  END IF;
  IF p.version IS DISTINCT FROM (SELECT last_version FROM outbox_heads WHERE aggregate_type = 'payment' AND aggregate_id = payment::text) THEN
    RAISE EXCEPTION 'payment % is at version %, which is not its number of events', payment, p.version
      USING errcode = '23514', constraint = 'payments_events_check';
  END IF;
END $$;
--> statement-breakpoint
CREATE OR REPLACE FUNCTION remit.refund_is_whole(refund uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  r refunds;
  p payments;
  held bigint;
  all_held bigint;
  debited numeric;
  credited numeric;
  sides bigint;
  entries bigint;
  transactions bigint;
  settled bigint;
BEGIN
  SELECT * INTO r FROM refunds WHERE id = refund FOR NO KEY UPDATE;
  SELECT * INTO p FROM payments WHERE id = r.payment_id;
  SELECT coalesce(sum(remaining) FILTER (WHERE account_id = p.destination AND payment_id = p.id), 0), coalesce(sum(remaining), 0)
    INTO held, all_held
    FROM holds
   WHERE refund_id = refund;
  IF held <> (CASE r.status WHEN 'pending' THEN r.amount ELSE 0 END) OR all_held <> held THEN
    RAISE EXCEPTION 'refund % of % is % and holds %', refund, r.amount, r.status, all_held
      USING errcode = '23514', constraint = 'refunds_hold_check';
  END IF;
  IF r.currency <> p.currency THEN
    RAISE EXCEPTION 'refund % is in %, its payment in %', refund, r.currency, p.currency
      USING errcode = '23514', constraint = 'refunds_payment_currency_check';
  END IF;
  settled := CASE r.status WHEN 'settled' THEN r.amount ELSE 0 END;
  SELECT coalesce(sum(e.amount) FILTER (WHERE e.direction = 'debit' AND e.account_id = p.destination), 0),
         coalesce(sum(e.amount) FILTER (WHERE e.direction = 'credit' AND e.account_id = p.source), 0),
         count(*) FILTER (WHERE (e.direction, e.account_id) IN (('debit', p.destination), ('credit', p.source))),
         count(DISTINCT t.id), count(*)
    INTO debited, credited, sides, transactions, entries
    FROM ledger_transactions t
    JOIN ledger_entries e ON e.transaction_id = t.id
   WHERE t.refund_id = refund AND t.payment_id = p.id;
  IF debited <> settled OR credited <> settled OR entries <> 2 * transactions OR sides <> entries
     OR transactions <> (SELECT count(*) FROM ledger_transactions WHERE refund_id = refund) THEN
    RAISE EXCEPTION 'refund % is %, booked % out and % in, expected %', refund, r.status, debited, credited, settled
      USING errcode = '23514', constraint = 'refunds_booked_check';
  END IF;
  IF (SELECT last_version FROM outbox_heads WHERE aggregate_type = 'refund' AND aggregate_id = refund::text)
     IS DISTINCT FROM (CASE r.status WHEN 'pending' THEN 1 ELSE 2 END) THEN
    RAISE EXCEPTION 'refund % is % without its event', refund, r.status
      USING errcode = '23514', constraint = 'refunds_events_check';
  END IF;
END $$;
--> statement-breakpoint
CREATE FUNCTION remit.transaction_is_balanced(transaction uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  entries bigint;
  unbalanced bigint;
BEGIN
  SELECT coalesce(sum(c), 0), count(*) FILTER (WHERE s <> 0)
    INTO entries, unbalanced
    FROM (SELECT count(*) c, sum(CASE direction WHEN 'credit' THEN amount::numeric ELSE -amount::numeric END) s
            FROM ledger_entries
           WHERE transaction_id = transaction
           GROUP BY currency) per_currency;
  IF entries < 2 OR unbalanced > 0 THEN
    RAISE EXCEPTION 'ledger transaction % does not sum to zero', transaction
      USING errcode = '23514', constraint = 'ledger_transactions_zero_sum_check';
  END IF;
END $$;
--> statement-breakpoint
CREATE OR REPLACE FUNCTION remit.ledger_transactions_balance() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  PERFORM transaction_is_balanced(new.id);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE FUNCTION remit.ledger_entries_whole() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  t ledger_transactions;
BEGIN
  SELECT * INTO t FROM ledger_transactions WHERE id = new.transaction_id;
  PERFORM transaction_is_balanced(t.id);
  IF t.kind = 'refund' THEN
    PERFORM refund_is_whole(t.refund_id);
  ELSE
    PERFORM payment_is_whole(t.payment_id);
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER ledger_entries_whole AFTER INSERT ON remit.ledger_entries
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.ledger_entries_whole();
--> statement-breakpoint
-- An event of a payment or refund that is there, without the change that it tells of, would stop the next change.
CREATE FUNCTION remit.outbox_counted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  counted bigint;
  last bigint;
BEGIN
  SELECT last_version INTO last FROM outbox_heads WHERE aggregate_type = new.aggregate_type AND aggregate_id = new.aggregate_id;
  IF new.aggregate_type = 'payment' THEN
    SELECT version INTO counted FROM payments WHERE id = new.aggregate_id::uuid;
  ELSE
    SELECT CASE status WHEN 'pending' THEN 1 ELSE 2 END INTO counted FROM refunds WHERE id = new.aggregate_id::uuid;
  END IF;
  IF counted <> last THEN
    RAISE EXCEPTION '% % is at version %, which is not its number of events (%)', new.aggregate_type, new.aggregate_id, counted, last
      USING errcode = '23514', constraint = new.aggregate_type || 's_events_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER outbox_counted AFTER INSERT ON remit.outbox
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.aggregate_type IN ('payment', 'refund') AND new.aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$') EXECUTE FUNCTION remit.outbox_counted();
--> statement-breakpoint
-- Money of a currency enters and leaves there: closed, it would be closed for ever.
ALTER TABLE remit.accounts ADD CONSTRAINT accounts_world_open_check CHECK (kind <> 'world' OR status <> 'closed');
--> statement-breakpoint
-- The number of a payment's events is compared at commit; a change that leaves its version as it was has none.
CREATE FUNCTION remit.payments_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'payment % changes from % to % and its version stays %', old.id, old.status, new.status, new.version
    USING errcode = '23514', constraint = 'payments_events_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER payments_version BEFORE UPDATE ON remit.payments
  FOR EACH ROW WHEN ((new.status <> old.status OR new.captured_amount <> old.captured_amount) AND new.version <= old.version)
  EXECUTE FUNCTION remit.payments_version();
--> statement-breakpoint
-- The ledger books from the row and not from the message: what it has still to book is purged by nobody.
CREATE FUNCTION remit.outbox_purge_awaited() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  awaited boolean;
BEGIN
  awaited := CASE old.type
    WHEN 'payment.created' THEN EXISTS (SELECT FROM payments WHERE id = old.aggregate_id::uuid AND status = 'pending')
    WHEN 'payment.captured' THEN EXISTS (SELECT FROM captures WHERE payment_id = old.aggregate_id::uuid AND id::text = old.payload #>> '{data,captureId}' AND status = 'pending')
    ELSE EXISTS (SELECT FROM refunds WHERE id = old.aggregate_id::uuid AND status = 'pending') END;
  IF awaited THEN
    RAISE EXCEPTION 'outbox row % is still to be booked', old.id
      USING errcode = '23514', constraint = 'outbox_purge_check';
  END IF;
  RETURN old;
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_purge_awaited BEFORE DELETE ON remit.outbox
  FOR EACH ROW WHEN (old.status = 'PUBLISHED'
                     AND (old.aggregate_type, old.type) IN (('payment', 'payment.created'), ('payment', 'payment.captured'), ('refund', 'refund.created'))
                     AND old.aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')
  EXECUTE FUNCTION remit.outbox_purge_awaited();
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
