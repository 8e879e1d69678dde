-- SET CONSTRAINTS … IMMEDIATE lets a deferred trigger judge before its transaction is at its end. So every table that can
-- make a payment wrong has a judge of its own, and one leaves it to another only where the other's row was written by a
-- later command, or the same one: that one judges after it, however early it is made to look. (cmin is the number of the
-- command within the transaction; a row of a subtransaction counts as another transaction's and is judged.)
CREATE OR REPLACE FUNCTION remit.payments_touched() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  written bigint;
BEGIN
  CASE tg_table_name
    WHEN 'holds' THEN SELECT cmin::text::bigint INTO written FROM holds WHERE id = new.id;
    WHEN 'captures' THEN SELECT cmin::text::bigint INTO written FROM captures WHERE id = new.id;
    WHEN 'ledger_transactions' THEN SELECT cmin::text::bigint INTO written FROM ledger_transactions WHERE id = new.id;
  END CASE;
  IF EXISTS (SELECT FROM payments
              WHERE id = new.payment_id
                AND xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295)
                AND cmin::text::bigint >= written) THEN
    RETURN NULL; -- the payment's own trigger looks after this row was written
  END IF;
  PERFORM payment_is_whole(new.payment_id);
  RETURN NULL;
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
  written bigint;
BEGIN
  SELECT cmin::text::bigint INTO written FROM ledger_entries WHERE id = new.id;
  IF EXISTS (SELECT FROM ledger_transactions
              WHERE id = new.transaction_id
                AND xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295)
                AND cmin::text::bigint >= written) THEN
    RETURN NULL; -- came with its transaction, whose own triggers look
  END IF;
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
    WHEN 'payment.captured' THEN EXISTS (SELECT FROM captures WHERE id = (old.payload #>> '{data,captureId}')::uuid AND status = 'pending')
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
