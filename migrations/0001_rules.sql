-- The rules that a constraint alone can't state. SECURITY DEFINER functions write what the application may not.

-- held follows the holds. BEFORE, because an AFTER trigger runs at the end of the statement and the booking releases
-- the hold and debits the account in one.
CREATE FUNCTION remit.holds_derive() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  released bigint;
BEGIN
  IF tg_op = 'INSERT' THEN
    new.remaining := new.amount;
    released := -new.amount;
  ELSE
    IF new.remaining > old.remaining THEN
      RAISE EXCEPTION 'hold % would grow from % to %', old.id, old.remaining, new.remaining
        USING errcode = '23514', constraint = 'holds_shrink_check';
    END IF;
    released := old.remaining - new.remaining;
  END IF;
  new.status := CASE new.remaining WHEN 0 THEN 'closed' ELSE 'open' END;
  new.closed_at := CASE new.remaining WHEN 0 THEN clock_timestamp() END;
  IF released <> 0 THEN
    UPDATE accounts SET held = held - released WHERE id = new.account_id;
  END IF;
  RETURN new;
END $$;
--> statement-breakpoint
CREATE TRIGGER holds_derive BEFORE INSERT OR UPDATE OF remaining ON remit.holds
  FOR EACH ROW EXECUTE FUNCTION remit.holds_derive();
--> statement-breakpoint
-- posted, balance_after and account_version follow the entries; entries come only with the transaction that they belong to.
CREATE FUNCTION remit.ledger_entries_post() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM ledger_transactions WHERE id = new.transaction_id AND xact = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'ledger transaction % is closed', new.transaction_id
      USING errcode = '23514', constraint = 'ledger_transactions_closed_check';
  END IF;
  UPDATE accounts
     SET posted = posted + CASE new.direction WHEN 'credit' THEN new.amount ELSE -new.amount END,
         version = version + 1
   WHERE id = new.account_id AND status <> 'closed'
  RETURNING posted, version INTO new.balance_after, new.account_version;
  IF NOT found THEN
    RAISE EXCEPTION 'account % is closed', new.account_id
      USING errcode = '23514', constraint = 'ledger_entries_account_open_check';
  END IF;
  RETURN new;
END $$;
--> statement-breakpoint
CREATE TRIGGER ledger_entries_post BEFORE INSERT ON remit.ledger_entries
  FOR EACH ROW EXECUTE FUNCTION remit.ledger_entries_post();
--> statement-breakpoint
CREATE FUNCTION remit.ledger_transactions_balance() RETURNS trigger LANGUAGE plpgsql SET search_path = remit, pg_temp AS $$
DECLARE
  entries bigint;
  unbalanced bigint;
BEGIN
  SELECT coalesce(sum(c), 0), count(*) FILTER (WHERE s <> 0)
    INTO entries, unbalanced
    FROM (SELECT count(*) c, sum(CASE direction WHEN 'credit' THEN amount::numeric ELSE -amount::numeric END) s
            FROM ledger_entries
           WHERE transaction_id = new.id
           GROUP BY currency) per_currency;
  IF entries < 2 OR unbalanced > 0 THEN
    RAISE EXCEPTION 'ledger transaction % does not sum to zero', new.id
      USING errcode = '23514', constraint = 'ledger_transactions_zero_sum_check';
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER ledger_transactions_balance AFTER INSERT ON remit.ledger_transactions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.ledger_transactions_balance();
--> statement-breakpoint
CREATE FUNCTION remit.append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on % is refused: the ledger only grows', tg_op, tg_table_name USING errcode = '42501';
END $$;
--> statement-breakpoint
CREATE TRIGGER ledger_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON remit.ledger_entries
  FOR EACH STATEMENT EXECUTE FUNCTION remit.append_only();
--> statement-breakpoint
CREATE TRIGGER ledger_transactions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON remit.ledger_transactions
  FOR EACH STATEMENT EXECUTE FUNCTION remit.append_only();
--> statement-breakpoint
CREATE FUNCTION remit.payments_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (old.status, new.status) NOT IN (
    ('pending', 'settled'), ('pending', 'failed'), ('pending', 'cancelled'),
    ('authorized', 'captured'), ('authorized', 'voided'), ('authorized', 'cancelled'), ('authorized', 'expired'), ('authorized', 'failed'),
    ('captured', 'settled'), ('captured', 'failed')
  ) THEN
    RAISE EXCEPTION 'payment %: % to % is not a transition', old.id, old.status, new.status
      USING errcode = '23514', constraint = 'payments_transition_check';
  END IF;
  RETURN new;
END $$;
--> statement-breakpoint
CREATE TRIGGER payments_transition BEFORE UPDATE ON remit.payments
  FOR EACH ROW WHEN (new.status <> old.status) EXECUTE FUNCTION remit.payments_transition();
--> statement-breakpoint
-- At commit a payment agrees with its hold, its ledger transactions and its events. It is looked up afresh: several
-- changes of one transaction are judged by where they end.
CREATE FUNCTION remit.payment_is_whole(payment uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  p payments;
  held bigint;
  debited numeric;
  credited numeric;
  transactions bigint;
  entries bigint;
  settled bigint;
  open bigint;
BEGIN
  SELECT * INTO p FROM payments WHERE id = payment;
  SELECT coalesce(sum(remaining), 0) INTO held FROM holds WHERE payment_id = payment AND refund_id IS NULL AND account_id = p.source;
  IF p.capture = 'automatic' THEN
    settled := CASE p.status WHEN 'settled' THEN p.amount ELSE 0 END;
    open := CASE p.status WHEN 'pending' THEN p.amount ELSE 0 END;
  ELSE
    SELECT coalesce(sum(amount) FILTER (WHERE status = 'settled'), 0),
           CASE p.status WHEN 'authorized' THEN p.amount - coalesce(sum(amount) FILTER (WHERE status = 'settled'), 0)
                         WHEN 'captured' THEN coalesce(sum(amount) FILTER (WHERE status = 'pending'), 0)
                         ELSE 0 END
      INTO settled, open
      FROM captures
     WHERE payment_id = payment;
  END IF;
  IF held <> open THEN
    RAISE EXCEPTION 'payment % is % and holds %, expected %', payment, p.status, held, open
      USING errcode = '23514', constraint = 'payments_hold_check';
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
  IF p.version IS DISTINCT FROM (SELECT last_version FROM outbox_heads WHERE aggregate_type = 'payment' AND aggregate_id = payment::text) THEN
    RAISE EXCEPTION 'payment % is at version %, which is not its number of events', payment, p.version
      USING errcode = '23514', constraint = 'payments_events_check';
  END IF;
END $$;
--> statement-breakpoint
CREATE FUNCTION remit.payments_whole() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  PERFORM payment_is_whole(new.id);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER payments_whole AFTER INSERT OR UPDATE ON remit.payments
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remit.payments_whole();
--> statement-breakpoint
-- The same judgement where only the other side was touched: a hold let go, or entries booked, for a payment left as it was.
CREATE FUNCTION remit.payments_touched() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM payments WHERE id = new.payment_id AND xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295)) THEN
    RETURN NULL; -- the payment's own trigger looks
  END IF;
  PERFORM payment_is_whole(new.payment_id);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER holds_whole AFTER INSERT OR UPDATE ON remit.holds
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.refund_id IS NULL) EXECUTE FUNCTION remit.payments_touched();
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER ledger_transactions_whole AFTER INSERT ON remit.ledger_transactions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.kind <> 'refund') EXECUTE FUNCTION remit.payments_touched();
--> statement-breakpoint
-- Version and shard of an event are given here, under the lock of the aggregate's head row, which is held to the commit:
-- a version becomes visible only after all lower ones, and a rollback leaves no gap. The shard is chosen once.
CREATE FUNCTION remit.outbox_number() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  version bigint;
BEGIN
  INSERT INTO outbox_heads AS h (aggregate_type, aggregate_id, shard, last_version)
  VALUES (new.aggregate_type, new.aggregate_id,
          get_byte(sha256(convert_to(new.aggregate_type || ':' || new.aggregate_id, 'UTF8')), 0) & 63, 1)
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET last_version = h.last_version + 1
  RETURNING h.last_version, h.shard INTO version, new.shard;
  IF new.aggregate_version IS NOT NULL AND new.aggregate_version <> version THEN
    RAISE EXCEPTION 'event % of % % is out of turn, the next is %', new.aggregate_version, new.aggregate_type, new.aggregate_id, version
      USING errcode = '40001';
  END IF;
  new.aggregate_version := version;
  RETURN new;
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_number BEFORE INSERT ON remit.outbox
  FOR EACH ROW EXECUTE FUNCTION remit.outbox_number();
--> statement-breakpoint
CREATE FUNCTION remit.outbox_terminal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'outbox row % is % for ever', old.id, old.status
    USING errcode = '23514', constraint = 'outbox_terminal_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_terminal BEFORE UPDATE ON remit.outbox
  FOR EACH ROW WHEN (old.status IN ('PUBLISHED', 'SKIPPED') AND new.status <> old.status) EXECUTE FUNCTION remit.outbox_terminal();
--> statement-breakpoint
CREATE FUNCTION remit.outbox_purge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'outbox row % is %: only published and skipped rows are purged', old.id, old.status
    USING errcode = '23514', constraint = 'outbox_purge_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_purge BEFORE DELETE ON remit.outbox
  FOR EACH ROW WHEN (old.status NOT IN ('PUBLISHED', 'SKIPPED')) EXECUTE FUNCTION remit.outbox_purge();
--> statement-breakpoint
CREATE TRIGGER outbox_no_truncate BEFORE TRUNCATE ON remit.outbox
  FOR EACH STATEMENT EXECUTE FUNCTION remit.append_only();
--> statement-breakpoint
CREATE FUNCTION remit.keys_are_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on idempotency_keys is refused: a key is kept for ever', tg_op USING errcode = '42501';
END $$;
--> statement-breakpoint
CREATE TRIGGER idempotency_keys_kept BEFORE DELETE OR TRUNCATE ON remit.idempotency_keys
  FOR EACH STATEMENT EXECUTE FUNCTION remit.keys_are_kept();
--> statement-breakpoint
-- A decision stands: only the transaction that claimed the key may still turn its prepared acceptance into a refusal.
CREATE FUNCTION remit.idempotency_keys_decided() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF old.outcome ->> 'decision' = 'accepted' AND new.outcome ->> 'decision' = 'refused'
     AND NOT EXISTS (SELECT FROM remit.payments WHERE merchant = old.merchant AND idempotency_key = old.key) THEN
    RETURN new;
  END IF;
  RAISE EXCEPTION 'the decision about key % of % stands', old.key, old.merchant
    USING errcode = '23514', constraint = 'idempotency_keys_decided_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER idempotency_keys_decided BEFORE UPDATE ON remit.idempotency_keys
  FOR EACH ROW EXECUTE FUNCTION remit.idempotency_keys_decided();
