-- Each row stands for its own: a ledger transaction for the event of its payment, a payment, capture or refund for its key,
-- an event for a payment or refund that is there. What names a stranger's would keep it from ever being decided.
CREATE FUNCTION remit.ledger_transactions_with_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM outbox o
     WHERE o.id = new.message_id
       AND (o.aggregate_type, o.type, o.aggregate_id) = (
             CASE new.kind WHEN 'refund' THEN 'refund' ELSE 'payment' END,
             CASE new.kind WHEN 'payment' THEN 'payment.created' WHEN 'capture' THEN 'payment.captured' ELSE 'refund.created' END,
             coalesce(new.refund_id, new.payment_id)::text)
       AND (new.kind <> 'capture' OR o.payload #>> '{data,captureId}' = new.capture_id::text)
  ) THEN
    RAISE EXCEPTION 'ledger transaction % stands for message %, which is no event of its %', new.id, new.message_id, new.kind
      USING errcode = '23514', constraint = 'ledger_transactions_event_check';
  END IF;
  IF new.kind = 'capture' AND NOT EXISTS (SELECT FROM captures WHERE id = new.capture_id AND payment_id = new.payment_id) THEN
    RAISE EXCEPTION 'ledger transaction % books capture %, which is not of payment %', new.id, new.capture_id, new.payment_id
      USING errcode = '23514', constraint = 'ledger_transactions_own_capture_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER ledger_transactions_with_event AFTER INSERT ON remit.ledger_transactions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.ledger_transactions_with_event();
--> statement-breakpoint
-- A missing payment or refund has no number of events that could be right. An event whose id the ledger has decided about
-- beforehand would never be booked.
CREATE OR REPLACE FUNCTION remit.outbox_counted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
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
  IF counted IS DISTINCT FROM last THEN
    RAISE EXCEPTION '% % is at version %, which is not its number of events (%)', new.aggregate_type, new.aggregate_id, counted, last
      USING errcode = '23514', constraint = new.aggregate_type || 's_events_check';
  END IF;
  IF EXISTS (SELECT FROM inbox WHERE consumer = 'ledger' AND message_id = new.id) THEN
    RAISE EXCEPTION 'event % was decided before it was there', new.id
      USING errcode = '23514', constraint = 'outbox_undecided_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
-- A capture that a foreign event names is not what waits for that event.
CREATE OR REPLACE FUNCTION remit.inbox_decided() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  decided text;
BEGIN
  SELECT outcome INTO decided FROM inbox WHERE consumer = new.consumer AND message_id = new.message_id;
  IF decided = 'booked' AND NOT EXISTS (SELECT FROM ledger_transactions WHERE message_id = new.message_id) THEN
    RAISE EXCEPTION 'message % is called booked, and no ledger transaction stands for it', new.message_id
      USING errcode = '23514', constraint = 'inbox_booked_check';
  END IF;
  IF decided = 'refused' AND EXISTS (
    SELECT FROM outbox o
     WHERE o.id = new.message_id
       AND CASE
             WHEN CASE o.type WHEN 'payment.captured' THEN o.payload #>> '{data,captureId}' ELSE o.aggregate_id END
                  ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' IS NOT TRUE THEN false -- the ledger knows no such event
             WHEN o.type = 'payment.created' THEN EXISTS (SELECT FROM payments WHERE id = o.aggregate_id::uuid AND status = 'pending')
             WHEN o.type = 'payment.captured' THEN EXISTS (SELECT FROM captures WHERE id = (o.payload #>> '{data,captureId}')::uuid AND payment_id::text = o.aggregate_id AND status = 'pending')
             WHEN o.type = 'refund.created' THEN EXISTS (SELECT FROM refunds WHERE id = o.aggregate_id::uuid AND status = 'pending')
             ELSE false END) THEN
    RAISE EXCEPTION 'message % is called refused, and what waits for it is still pending', new.message_id
      USING errcode = '23514', constraint = 'inbox_refused_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
-- One key, one payment, capture or refund: the key says which.
CREATE FUNCTION remit.payments_with_key() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM idempotency_keys
     WHERE merchant = new.merchant AND key = new.idempotency_key AND operation = 'pay'
       AND outcome ->> 'decision' = 'accepted' AND outcome ->> 'paymentId' = new.id::text
  ) THEN
    RAISE EXCEPTION 'payment % has no key that was accepted for it', new.id
      USING errcode = '23514', constraint = 'payments_with_key_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER payments_with_key AFTER INSERT ON remit.payments
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.payments_with_key();
--> statement-breakpoint
CREATE FUNCTION remit.parts_with_key() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM payments p
      JOIN idempotency_keys k ON k.merchant = p.merchant AND k.key = new.idempotency_key
     WHERE p.id = new.payment_id AND k.operation = tg_argv[0] AND k.outcome ->> 'decision' = 'accepted'
       AND k.outcome ->> 'paymentId' = new.payment_id::text AND k.outcome ->> 'partId' = new.id::text
  ) THEN
    RAISE EXCEPTION '% % has no key that was accepted for it', tg_argv[0], new.id
      USING errcode = '23514', constraint = tg_argv[0] || 's_with_key_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER captures_with_key AFTER INSERT ON remit.captures
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.parts_with_key('capture');
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER refunds_with_key AFTER INSERT ON remit.refunds
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.parts_with_key('refund');
--> statement-breakpoint
-- The other way round: who uses an accepted key again is answered with what it made, so that must be there.
CREATE FUNCTION remit.idempotency_keys_kept_word() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  k idempotency_keys;
  is_kept boolean;
BEGIN
  SELECT * INTO k FROM idempotency_keys WHERE merchant = new.merchant AND key = new.key;
  IF k.outcome ->> 'decision' = 'refused' THEN
    RETURN NULL;
  END IF;
  is_kept := CASE k.operation
    WHEN 'pay' THEN EXISTS (SELECT FROM payments WHERE id = (k.outcome ->> 'paymentId')::uuid AND merchant = k.merchant AND idempotency_key = k.key)
    WHEN 'capture' THEN EXISTS (SELECT FROM captures WHERE id = (k.outcome ->> 'partId')::uuid AND payment_id = (k.outcome ->> 'paymentId')::uuid AND idempotency_key = k.key)
    WHEN 'refund' THEN EXISTS (SELECT FROM refunds WHERE id = (k.outcome ->> 'partId')::uuid AND payment_id = (k.outcome ->> 'paymentId')::uuid AND idempotency_key = k.key)
    ELSE EXISTS (SELECT FROM payments WHERE id = (k.outcome ->> 'paymentId')::uuid AND merchant = k.merchant AND status NOT IN ('pending', 'authorized')) END;
  IF NOT is_kept THEN
    RAISE EXCEPTION 'key % of % is an accepted % that was not made', k.key, k.merchant, k.operation
      USING errcode = '23514', constraint = 'idempotency_keys_kept_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER idempotency_keys_kept_word AFTER INSERT ON remit.idempotency_keys
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.idempotency_keys_kept_word();
--> statement-breakpoint
-- Ids in the one spelling that they are compared in.
ALTER TABLE remit.idempotency_keys
  DROP CONSTRAINT idempotency_keys_outcome_check,
  ADD CONSTRAINT idempotency_keys_outcome_check CHECK ((
    coalesce(outcome ->> 'paymentId' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', true)
    AND coalesce(outcome ->> 'partId' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', true)
    AND CASE outcome ->> 'decision'
          WHEN 'accepted' THEN outcome ->> 'paymentId' IS NOT NULL AND (outcome ->> 'partId' IS NOT NULL) = (operation IN ('capture', 'refund'))
          WHEN 'refused' THEN jsonb_typeof(outcome -> 'code') = 'string' AND jsonb_typeof(outcome -> 'message') = 'string'
        END) IS TRUE);
--> statement-breakpoint
-- A decision stands: only the transaction that claimed the key may still turn its prepared acceptance into a refusal, and
-- only before it has made what the key is for.
CREATE OR REPLACE FUNCTION remit.idempotency_keys_decided() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF old.outcome ->> 'decision' = 'accepted' AND new.outcome ->> 'decision' = 'refused'
     AND old.xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295)
     AND NOT EXISTS (SELECT FROM payments WHERE merchant = old.merchant AND idempotency_key = old.key)
     AND NOT EXISTS (SELECT FROM captures WHERE id = (old.outcome ->> 'partId')::uuid)
     AND NOT EXISTS (SELECT FROM refunds WHERE id = (old.outcome ->> 'partId')::uuid) THEN
    RETURN new;
  END IF;
  RAISE EXCEPTION 'the decision about key % of % stands', old.key, old.merchant
    USING errcode = '23514', constraint = 'idempotency_keys_decided_check';
END $$;
--> statement-breakpoint
-- What looks for the late would never find what happens at the end of time. The longest authorization takes 30 days.
ALTER TABLE remit.payments
  ADD CONSTRAINT payments_expires_range_check CHECK (expires_at - created_at BETWEEN interval '-31 days' AND interval '31 days');
--> statement-breakpoint
CREATE FUNCTION remit.times_refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = remit, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '%: a time that is too far off, by the clock of the database: %', tg_table_name, to_jsonb(new)
    USING errcode = '23514', constraint = tg_table_name || '_times_check';
END $$;
--> statement-breakpoint
-- Only what a statement changes: after a clock was set back, what it wrote before is left alone.
CREATE TRIGGER outbox_times BEFORE UPDATE ON remit.outbox
  FOR EACH ROW WHEN ((new.published_at IS DISTINCT FROM old.published_at AND new.published_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
                     OR (new.lease_until IS DISTINCT FROM old.lease_until AND new.lease_until NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 hour')
                     OR (new.next_attempt_at IS DISTINCT FROM old.next_attempt_at AND new.next_attempt_at <> '-infinity'
                         AND new.next_attempt_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 day'))
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
CREATE TRIGGER payments_times BEFORE UPDATE ON remit.payments
  FOR EACH ROW WHEN ((new.updated_at IS DISTINCT FROM old.updated_at AND new.updated_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
                     OR (new.settled_at IS DISTINCT FROM old.settled_at AND new.settled_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute'))
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
CREATE TRIGGER captures_times BEFORE UPDATE ON remit.captures
  FOR EACH ROW WHEN (new.settled_at IS DISTINCT FROM old.settled_at AND new.settled_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
CREATE TRIGGER refunds_times BEFORE UPDATE ON remit.refunds
  FOR EACH ROW WHEN (new.settled_at IS DISTINCT FROM old.settled_at AND new.settled_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
CREATE TRIGGER inbox_times BEFORE INSERT OR UPDATE OF processed_at ON remit.inbox
  FOR EACH ROW WHEN (new.processed_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
CREATE TRIGGER findings_times BEFORE UPDATE ON remit.findings
  FOR EACH ROW WHEN ((new.last_seen_at IS DISTINCT FROM old.last_seen_at AND new.last_seen_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
                     OR (new.cleared_at IS DISTINCT FROM old.cleared_at AND new.cleared_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
                     OR (new.acknowledged_at IS DISTINCT FROM old.acknowledged_at AND new.acknowledged_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute'))
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
CREATE TRIGGER reconciliations_times BEFORE INSERT ON remit.reconciliations
  FOR EACH ROW WHEN (new.started_at NOT BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute')
  EXECUTE FUNCTION remit.times_refuse();
--> statement-breakpoint
-- What is judged against other rows is judged by what is committed. Other programs' events are theirs to isolate.
CREATE TRIGGER inbox_read_committed BEFORE INSERT OR UPDATE OR DELETE ON remit.inbox
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER idempotency_keys_read_committed BEFORE INSERT OR UPDATE ON remit.idempotency_keys
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER outbox_insert_read_committed BEFORE INSERT ON remit.outbox
  FOR EACH ROW WHEN (new.aggregate_type IN ('payment', 'refund') AND current_setting('transaction_isolation') <> 'read committed')
  EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER outbox_read_committed BEFORE UPDATE OR DELETE ON remit.outbox
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
-- A caller's own types and casts, in its temporary schema, must not be what a rule means.
ALTER FUNCTION remit.append_only() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.payments_transition() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.outbox_terminal() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.outbox_purge() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.keys_are_kept() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.parts_transition() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.accounts_stay_closed() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.outbox_refuse() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.new_message_id() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.payments_version() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.finding_stays() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.reconciliation_stays() SET search_path = remit, pg_temp;
--> statement-breakpoint
ALTER FUNCTION remit.read_committed_only() SET search_path = remit, pg_temp;
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
