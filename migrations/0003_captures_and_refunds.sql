-- Captures and refunds with their rules, and how often a message was delivered. Both tables were empty: nothing could write them.
ALTER TABLE remit.inbox
  ADD COLUMN deliveries integer NOT NULL DEFAULT 1 CONSTRAINT inbox_deliveries_check CHECK (deliveries > 0);
--> statement-breakpoint
ALTER TABLE remit.captures
  ADD COLUMN idempotency_key text COLLATE "C" NOT NULL,
  ADD CONSTRAINT captures_key_check CHECK (idempotency_key ~ '^[\x21-\x7e]{1,255}$'),
  ADD CONSTRAINT captures_failed_check CHECK ((status = 'failed') = (failure_code IS NOT NULL));
--> statement-breakpoint
ALTER TABLE remit.refunds
  ADD COLUMN idempotency_key text COLLATE "C" NOT NULL,
  ADD CONSTRAINT refunds_key_check CHECK (idempotency_key ~ '^[\x21-\x7e]{1,255}$'),
  ADD CONSTRAINT refunds_failed_check CHECK ((status = 'failed') = (failure_code IS NOT NULL)),
  ADD CONSTRAINT refunds_currency_check CHECK (currency ~ '^[A-Z]{3}$');
--> statement-breakpoint
-- Few refunds are open at a time: the supervisor finds those without a workflow here.
CREATE INDEX refunds_open_idx ON remit.refunds (id) WHERE status = 'pending';
--> statement-breakpoint
ALTER TABLE remit.payments
  ADD CONSTRAINT payments_capture_status_check CHECK (CASE capture
    WHEN 'automatic' THEN status IN ('pending', 'settled', 'failed', 'cancelled')
    ELSE status IN ('authorized', 'captured', 'settled', 'failed', 'voided', 'expired') END),
  -- Without an end an authorization would hold its money for ever.
  ADD CONSTRAINT payments_expires_check CHECK ((capture = 'manual') = (expires_at IS NOT NULL));
--> statement-breakpoint
CREATE FUNCTION remit.parts_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% %: % to % is not a transition', tg_argv[0], old.id, old.status, new.status
    USING errcode = '23514', constraint = tg_argv[0] || 's_transition_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER captures_transition BEFORE UPDATE ON remit.captures
  FOR EACH ROW WHEN (old.status <> 'pending') EXECUTE FUNCTION remit.parts_transition('capture');
--> statement-breakpoint
CREATE TRIGGER refunds_transition BEFORE UPDATE ON remit.refunds
  FOR EACH ROW WHEN (old.status <> 'pending') EXECUTE FUNCTION remit.parts_transition('refund');
--> statement-breakpoint
-- An automatic payment is booked as a whole: payment_is_whole does not look for its captures.
CREATE FUNCTION remit.captures_manual() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM payments WHERE id = new.payment_id AND capture = 'automatic') THEN
    RAISE EXCEPTION 'payment % is captured automatically', new.payment_id
      USING errcode = '23514', constraint = 'captures_manual_check';
  END IF;
  RETURN new;
END $$;
--> statement-breakpoint
CREATE TRIGGER captures_manual BEFORE INSERT ON remit.captures
  FOR EACH ROW EXECUTE FUNCTION remit.captures_manual();
--> statement-breakpoint
-- refunded_amount follows the refunds that are pending or settled. The update locks the payment, so that two refunds of
-- one payment come one after the other; payment_is_whole judges the sum.
CREATE FUNCTION remit.refunds_derive() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  UPDATE payments
     SET refunded_amount = refunded_amount + CASE WHEN tg_op = 'INSERT' THEN new.amount ELSE -new.amount END,
         updated_at = clock_timestamp()
   WHERE id = new.payment_id;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER refunds_derive_insert AFTER INSERT ON remit.refunds
  FOR EACH ROW EXECUTE FUNCTION remit.refunds_derive();
--> statement-breakpoint
CREATE TRIGGER refunds_derive_failed AFTER UPDATE ON remit.refunds
  FOR EACH ROW WHEN (old.status = 'pending' AND new.status = 'failed') EXECUTE FUNCTION remit.refunds_derive();
--> statement-breakpoint
CREATE OR REPLACE FUNCTION remit.payments_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (old.status, new.status) NOT IN (
    ('pending', 'settled'), ('pending', 'failed'), ('pending', 'cancelled'),
    -- To settled where all that was captured is booked by the time that the rest is released.
    ('authorized', 'captured'), ('authorized', 'settled'), ('authorized', 'voided'), ('authorized', 'expired'),
    ('captured', 'settled'), ('captured', 'failed')
  ) THEN
    RAISE EXCEPTION 'payment %: % to % is not a transition', old.id, old.status, new.status
      USING errcode = '23514', constraint = 'payments_transition_check';
  END IF;
  RETURN new;
END $$;
--> statement-breakpoint
-- At commit a payment agrees with its hold, its captures, its ledger transactions and its events. It is looked up afresh:
-- several changes of one transaction are judged by where they end.
CREATE OR REPLACE FUNCTION remit.payment_is_whole(payment uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  p payments;
  held bigint;
  debited numeric;
  credited numeric;
  transactions bigint;
  entries bigint;
  settled bigint;
  pending bigint := 0;
  open bigint;
BEGIN
  SELECT * INTO p FROM payments WHERE id = payment;
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
  -- Each of its ledger transactions is one debit of the source and one credit of the destination: a third entry would
  -- be somebody else's money riding along.
  SELECT coalesce(sum(e.amount) FILTER (WHERE e.direction = 'debit' AND e.account_id = p.source), 0),
         coalesce(sum(e.amount) FILTER (WHERE e.direction = 'credit' AND e.account_id = p.destination), 0),
         count(DISTINCT t.id), count(*)
    INTO debited, credited, transactions, entries
    FROM ledger_transactions t
    JOIN ledger_entries e ON e.transaction_id = t.id
   WHERE t.payment_id = payment AND t.kind IN ('payment', 'capture');
  IF debited <> settled OR credited <> settled OR entries <> 2 * transactions OR (p.status = 'settled' AND settled = 0) THEN
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
CREATE CONSTRAINT TRIGGER captures_whole AFTER INSERT OR UPDATE ON remit.captures
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.payments_touched();
--> statement-breakpoint
-- The same for a refund: its hold on the payment's destination, its one ledger transaction the other way round, its events.
CREATE FUNCTION remit.refund_is_whole(refund uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  r refunds;
  p payments;
  held bigint;
  all_held bigint;
  debited numeric;
  credited numeric;
  entries bigint;
  transactions bigint;
  settled bigint;
BEGIN
  SELECT * INTO r FROM refunds WHERE id = refund;
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
         count(DISTINCT t.id), count(*)
    INTO debited, credited, transactions, entries
    FROM ledger_transactions t
    JOIN ledger_entries e ON e.transaction_id = t.id
   WHERE t.refund_id = refund AND t.payment_id = p.id;
  IF debited <> settled OR credited <> settled OR entries <> 2 * transactions
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
CREATE FUNCTION remit.refunds_whole() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  PERFORM refund_is_whole(new.id);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE FUNCTION remit.refunds_touched() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  PERFORM refund_is_whole(new.refund_id);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER refunds_whole AFTER INSERT OR UPDATE ON remit.refunds
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.refunds_whole();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER holds_refund_whole AFTER INSERT OR UPDATE ON remit.holds
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.refund_id IS NOT NULL) EXECUTE FUNCTION remit.refunds_touched();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER ledger_transactions_refund_whole AFTER INSERT ON remit.ledger_transactions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.kind = 'refund') EXECUTE FUNCTION remit.refunds_touched();
--> statement-breakpoint
-- A closed account is closed for ever: its id could otherwise come to mean another customer's money.
CREATE FUNCTION remit.accounts_stay_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'account % is closed for ever', old.id
    USING errcode = '23514', constraint = 'accounts_closed_for_ever_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER accounts_stay_closed BEFORE UPDATE OF status ON remit.accounts
  FOR EACH ROW WHEN (old.status = 'closed' AND new.status <> 'closed') EXECUTE FUNCTION remit.accounts_stay_closed();
--> statement-breakpoint
-- A decision stands: only the transaction that claimed the key may still turn its prepared acceptance into a refusal.
CREATE OR REPLACE FUNCTION remit.idempotency_keys_decided() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF old.outcome ->> 'decision' = 'accepted' AND new.outcome ->> 'decision' = 'refused'
     AND old.xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295)
     AND NOT EXISTS (SELECT FROM remit.payments WHERE merchant = old.merchant AND idempotency_key = old.key) THEN
    RETURN new;
  END IF;
  RAISE EXCEPTION 'the decision about key % of % stands', old.key, old.merchant
    USING errcode = '23514', constraint = 'idempotency_keys_decided_check';
END $$;
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
--> statement-breakpoint
GRANT INSERT (id, payment_id, idempotency_key, amount, final), UPDATE (status, failure_code, settled_at) ON remit.captures TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, payment_id, idempotency_key, amount, currency, reason), UPDATE (status, failure_code, settled_at) ON remit.refunds TO remit_app;
--> statement-breakpoint
GRANT INSERT (refund_id) ON remit.holds TO remit_app;
--> statement-breakpoint
GRANT INSERT (capture_id, refund_id) ON remit.ledger_transactions TO remit_app;
--> statement-breakpoint
GRANT UPDATE (deliveries) ON remit.inbox TO remit_app;
