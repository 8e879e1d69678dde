-- A BEFORE INSERT trigger also runs for a row that ON CONFLICT then leaves out, and what it wrote elsewhere stays. So a hold
-- is reserved when its row is there, and what entries and events moved on is compared with the row that moved it.
CREATE OR REPLACE FUNCTION remit.holds_derive() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF tg_op = 'INSERT' THEN
    new.remaining := new.amount;
  ELSIF new.remaining > old.remaining THEN
    RAISE EXCEPTION 'hold % would grow from % to %', old.id, old.remaining, new.remaining
      USING errcode = '23514', constraint = 'holds_shrink_check';
  ELSIF new.remaining < old.remaining THEN
    -- Before the row: the booking releases the hold and debits the account in one statement.
    UPDATE accounts SET held = held - (old.remaining - new.remaining) WHERE id = new.account_id;
  END IF;
  new.status := CASE new.remaining WHEN 0 THEN 'closed' ELSE 'open' END;
  new.closed_at := CASE new.remaining WHEN 0 THEN clock_timestamp() END;
  RETURN new;
END $$;
--> statement-breakpoint
-- A hold lies on the account that gives: a judge of the payment looks at no other.
CREATE FUNCTION remit.holds_reserve() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM payments p WHERE p.id = new.payment_id AND new.account_id = CASE WHEN new.refund_id IS NULL THEN p.source ELSE p.destination END) THEN
    RAISE EXCEPTION 'hold % is on account %, which gives nothing for payment %', new.id, new.account_id, new.payment_id
      USING errcode = '23514', constraint = 'holds_account_check';
  END IF;
  UPDATE accounts SET held = held + new.amount WHERE id = new.account_id;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER holds_reserve AFTER INSERT ON remit.holds
  FOR EACH ROW EXECUTE FUNCTION remit.holds_reserve();
--> statement-breakpoint
CREATE FUNCTION remit.accounts_follow() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM ledger_entries WHERE account_id = new.id AND account_version = new.version AND balance_after = new.posted) THEN
    RAISE EXCEPTION 'account % is at version % with % without the entry that led there', new.id, new.version, new.posted
      USING errcode = '23514', constraint = 'accounts_entries_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER accounts_follow AFTER UPDATE ON remit.accounts
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.version <> old.version OR new.posted <> old.posted) EXECUTE FUNCTION remit.accounts_follow();
--> statement-breakpoint
CREATE FUNCTION remit.outbox_heads_follow() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM outbox WHERE aggregate_type = new.aggregate_type AND aggregate_id = new.aggregate_id AND aggregate_version = new.last_version) THEN
    RAISE EXCEPTION '% % has no event %, which would be its last', new.aggregate_type, new.aggregate_id, new.last_version
      USING errcode = '23514', constraint = 'outbox_heads_event_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER outbox_heads_follow AFTER INSERT OR UPDATE OF last_version ON remit.outbox_heads
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.outbox_heads_follow();
--> statement-breakpoint
-- A judge that waits for the lock of a row sees what the other has committed; under a snapshot it would judge by what was.
CREATE FUNCTION remit.read_committed_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is written under READ COMMITTED only, found %', tg_table_name, current_setting('transaction_isolation')
    USING errcode = '25000', hint = 'BEGIN ISOLATION LEVEL READ COMMITTED';
END $$;
--> statement-breakpoint
CREATE TRIGGER payments_read_committed BEFORE INSERT OR UPDATE OR DELETE ON remit.payments
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER captures_read_committed BEFORE INSERT OR UPDATE OR DELETE ON remit.captures
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER refunds_read_committed BEFORE INSERT OR UPDATE OR DELETE ON remit.refunds
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER holds_read_committed BEFORE INSERT OR UPDATE OR DELETE ON remit.holds
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER ledger_transactions_read_committed BEFORE INSERT ON remit.ledger_transactions
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
CREATE TRIGGER ledger_entries_read_committed BEFORE INSERT ON remit.ledger_entries
  FOR EACH STATEMENT WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION remit.read_committed_only();
--> statement-breakpoint
-- An inbox row stands for a decision: without one the message would never be decided, and whoever waits for it wait for ever.
ALTER TABLE remit.inbox ADD CONSTRAINT inbox_ledger_check CHECK (consumer <> 'ledger' OR outcome IS NOT NULL);
--> statement-breakpoint
CREATE FUNCTION remit.inbox_decided() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
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
             WHEN o.type = 'payment.captured' THEN EXISTS (SELECT FROM captures WHERE id = (o.payload #>> '{data,captureId}')::uuid AND status = 'pending')
             WHEN o.type = 'refund.created' THEN EXISTS (SELECT FROM refunds WHERE id = o.aggregate_id::uuid AND status = 'pending')
             ELSE false END) THEN
    RAISE EXCEPTION 'message % is called refused, and what waits for it is still pending', new.message_id
      USING errcode = '23514', constraint = 'inbox_refused_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER inbox_decided AFTER INSERT OR UPDATE OF outcome ON remit.inbox
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.consumer = 'ledger') EXECUTE FUNCTION remit.inbox_decided();
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
