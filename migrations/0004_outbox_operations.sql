-- What an operator does to messages is recorded: who, why, when, and what came of it. The record only grows.
CREATE TABLE remit.operator_actions (
  id         uuid CONSTRAINT operator_actions_pkey PRIMARY KEY,
  action     text NOT NULL,
  message_id uuid,
  actor      text NOT NULL,
  reason     text NOT NULL,
  details    jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT operator_actions_action_check CHECK (action ~ '^[a-z]+[.][a-z]+$'),
  CONSTRAINT operator_actions_actor_check CHECK (char_length(actor) BETWEEN 1 AND 200),
  CONSTRAINT operator_actions_reason_check CHECK (char_length(reason) BETWEEN 1 AND 500)
);
--> statement-breakpoint
CREATE INDEX operator_actions_message_idx ON remit.operator_actions (message_id);
--> statement-breakpoint
CREATE TRIGGER operator_actions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON remit.operator_actions
  FOR EACH STATEMENT EXECUTE FUNCTION remit.append_only();
--> statement-breakpoint
GRANT SELECT ON remit.operator_actions TO remit_app, remit_read;
--> statement-breakpoint
GRANT INSERT (id, action, message_id, actor, reason, details) ON remit.operator_actions TO remit_app;
--> statement-breakpoint
-- An event is skipped by a person, never by a program: without the record of who and why it can't be.
CREATE FUNCTION remit.outbox_skip() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM operator_actions WHERE message_id = new.id AND action = 'outbox.skip') THEN
    RAISE EXCEPTION 'outbox row % is skipped and nobody says why', new.id
      USING errcode = '23514', constraint = 'outbox_skip_check';
  END IF;
  RETURN new;
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_skip BEFORE UPDATE ON remit.outbox
  FOR EACH ROW WHEN (new.status = 'SKIPPED' AND old.status <> 'SKIPPED') EXECUTE FUNCTION remit.outbox_skip();
--> statement-breakpoint
-- What SNS and SQS would refuse is refused in the transaction of the business, before it can become a row that poisons its
-- aggregate. Triggers with conditions and no constraints: those would be looked at again by each claim and each mark.
CREATE FUNCTION remit.outbox_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'outbox row %: %', new.id, tg_argv[1] USING errcode = '23514', constraint = tg_argv[0];
END $$;
--> statement-breakpoint
-- Headers become SNS attributes beside the three that each message has: with raw delivery SQS drops a message of more than
-- ten, and a tracing agent adds its own. SNS takes one with a tab or a line break, and the message is never delivered.
CREATE TRIGGER outbox_attributes BEFORE INSERT OR UPDATE OF headers ON remit.outbox
  FOR EACH ROW WHEN ((new.headers::text ~ '^{("[A-Za-z][A-Za-z0-9_-]{0,63}": "[ !#-[\]-~]+"(, |})){0,3}}?$'
                      AND NOT new.headers ?| '{type,aggregateType,aggregateVersion}') IS NOT TRUE)
  EXECUTE FUNCTION remit.outbox_refuse('outbox_attributes_check',
    'headers are at most three names (64 of A-Z, a-z, 0-9, _, -, a letter first) with values of printable ASCII (no quote, no backslash), and none of type, aggregateType, aggregateVersion');
--> statement-breakpoint
-- Not in XML 1.0, so no queue carries them; jsonb escapes or refuses the others.
CREATE TRIGGER outbox_characters BEFORE INSERT OR UPDATE OF payload ON remit.outbox
  FOR EACH ROW WHEN (new.payload::text ~ '[\uFFFE\uFFFF]')
  EXECUTE FUNCTION remit.outbox_refuse('outbox_characters_check', 'the payload holds U+FFFE or U+FFFF, which no queue carries');
--> statement-breakpoint
-- Consumers know a message by the id in its document: it can't be another one than the row's.
CREATE TRIGGER outbox_envelope BEFORE INSERT OR UPDATE OF id, type, payload ON remit.outbox
  FOR EACH ROW WHEN (coalesce(new.payload ->> 'id', new.id::text) <> new.id::text OR coalesce(new.payload ->> 'type', new.type) <> new.type)
  EXECUTE FUNCTION remit.outbox_refuse('outbox_envelope_check', 'the document names another id or type than its row');
--> statement-breakpoint
-- For retention. Not partial: with a second partial index the claim's plan depends on statistics that lie.
CREATE INDEX outbox_created_idx ON remit.outbox (created_at);
--> statement-breakpoint
CREATE INDEX inbox_received_idx ON remit.inbox (received_at);
--> statement-breakpoint
-- UUIDv7 (RFC 9562, 5.7): 48 bits of milliseconds, version, variant, random bits. PostgreSQL has its own from 18 on.
CREATE FUNCTION remit.new_message_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
                                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                                        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
--> statement-breakpoint
-- The way into the outbox for other programs, in their own transaction: they can send what they like, and nothing in the
-- name of a payment. Answers the message's id.
CREATE FUNCTION remit.emit_event(aggregate_type text, aggregate_id text, type text, data jsonb, source text DEFAULT '/', attributes jsonb DEFAULT '{}')
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
  message_id uuid := new_message_id();
BEGIN
  IF aggregate_type IN ('payment', 'refund') OR type ~ '^(payment|refund)[.]' THEN
    RAISE EXCEPTION 'events of payments and refunds come from Remit only'
      USING errcode = '42501', hint = 'choose another aggregate type and event type';
  END IF;
  INSERT INTO outbox (id, aggregate_type, aggregate_id, type, payload, headers)
  VALUES (message_id, aggregate_type, aggregate_id, type,
          jsonb_build_object('specversion', '1.0', 'id', message_id, 'source', source, 'type', type, 'subject', aggregate_id,
                             'time', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                             'datacontenttype', 'application/json', 'data', data),
          attributes);
  RETURN message_id;
END $$;
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
--> statement-breakpoint
GRANT USAGE ON SCHEMA remit TO remit_producer;
--> statement-breakpoint
GRANT EXECUTE ON FUNCTION remit.emit_event(text, text, text, jsonb, text, jsonb) TO remit_producer, remit_app;
--> statement-breakpoint
-- How far the events of an aggregate were purged, for the invariant of versions without gaps.
CREATE FUNCTION remit.outbox_purged() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
  UPDATE outbox_heads h
     SET purged_version = greatest(h.purged_version, p.version)
    FROM (SELECT aggregate_type, aggregate_id, max(aggregate_version) AS version FROM purged GROUP BY aggregate_type, aggregate_id) p
   WHERE h.aggregate_type = p.aggregate_type AND h.aggregate_id = p.aggregate_id;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_purged AFTER DELETE ON remit.outbox
  REFERENCING OLD TABLE AS purged FOR EACH STATEMENT EXECUTE FUNCTION remit.outbox_purged();
--> statement-breakpoint
-- A check is made again at each claim and each mark. A bounded repetition of a class of characters took 30 µs there, the
-- length and the class apart take 1.4.
ALTER TABLE remit.outbox
  DROP CONSTRAINT outbox_aggregate_id_check,
  DROP CONSTRAINT outbox_aggregate_type_check,
  DROP CONSTRAINT outbox_type_check,
  ADD CONSTRAINT outbox_aggregate_id_check CHECK (octet_length(aggregate_id) BETWEEN 1 AND 128 AND aggregate_id !~ '[^\x21-\x7e]'),
  ADD CONSTRAINT outbox_aggregate_type_check CHECK (octet_length(aggregate_type) <= 64 AND aggregate_type ~ '^[A-Za-z][A-Za-z0-9_-]*$'),
  ADD CONSTRAINT outbox_type_check CHECK (octet_length(type) <= 128 AND type ~ '^[A-Za-z][A-Za-z0-9_.-]*$');
--> statement-breakpoint
ALTER TABLE remit.payments
  DROP CONSTRAINT payments_key_check,
  DROP CONSTRAINT payments_merchant_check,
  ADD CONSTRAINT payments_key_check CHECK (octet_length(idempotency_key) BETWEEN 1 AND 255 AND idempotency_key !~ '[^\x21-\x7e]'),
  ADD CONSTRAINT payments_merchant_check CHECK (octet_length(merchant) BETWEEN 1 AND 64 AND merchant !~ '[^a-z0-9-]');
--> statement-breakpoint
ALTER TABLE remit.accounts
  DROP CONSTRAINT accounts_id_check,
  ADD CONSTRAINT accounts_id_check CHECK (octet_length(id) BETWEEN 1 AND 64 AND id !~ '[^A-Za-z0-9._:-]');
