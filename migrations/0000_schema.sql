-- The schema states the invariants: what can be derived is derived by triggers that the owner owns, and the role of the
-- application has no right to write it (see the grants in 0002_privileges.sql). Amounts are minor units. Row times are
-- clock_timestamp(): now() is the start of the transaction, so a later row could look older.

CREATE TABLE remit.accounts (
  id         text COLLATE "C" CONSTRAINT accounts_pkey PRIMARY KEY,
  kind       text NOT NULL,
  currency   char(3) NOT NULL,
  status     text NOT NULL DEFAULT 'active',
  posted     bigint NOT NULL DEFAULT 0,
  held       bigint NOT NULL DEFAULT 0,
  overdraft  bigint NOT NULL DEFAULT 0,
  version    bigint NOT NULL DEFAULT 0,
  metadata   jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT accounts_id_check CHECK (id ~ '^[A-Za-z0-9._:-]{1,64}$'),
  CONSTRAINT accounts_kind_check CHECK (kind IN ('customer', 'merchant', 'fee', 'world')),
  CONSTRAINT accounts_world_check CHECK ((kind = 'world') = (id ~ '^world:') AND (kind <> 'world' OR id = 'world:' || currency)),
  CONSTRAINT accounts_currency_check CHECK (currency ~ '^[A-Z]{3}$'),
  CONSTRAINT accounts_status_check CHECK (status IN ('active', 'frozen', 'closed')),
  CONSTRAINT accounts_held_check CHECK (held >= 0),
  CONSTRAINT accounts_overdraft_check CHECK (overdraft BETWEEN 0 AND 999999999999999999),
  -- Leaves room for one more payment of 10^18 - 1 below the end of bigint, so that a sum can't overflow unseen.
  CONSTRAINT accounts_posted_range_check CHECK (posted BETWEEN -4000000000000000000 AND 4000000000000000000 AND held <= 4000000000000000000),
  CONSTRAINT accounts_available_check CHECK (kind = 'world' OR posted - held >= -overdraft),
  CONSTRAINT accounts_closed_check CHECK (status <> 'closed' OR (posted = 0 AND held = 0)),
  CONSTRAINT accounts_id_currency_key UNIQUE (id, currency)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
--> statement-breakpoint
CREATE TABLE remit.payments (
  id              uuid CONSTRAINT payments_pkey PRIMARY KEY,
  merchant        text COLLATE "C" NOT NULL,
  idempotency_key text COLLATE "C" NOT NULL,
  source          text COLLATE "C" NOT NULL,
  destination     text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL,
  currency        char(3) NOT NULL,
  capture         text NOT NULL,
  status          text NOT NULL,
  captured_amount bigint NOT NULL DEFAULT 0,
  refunded_amount bigint NOT NULL DEFAULT 0,
  failure_code    text,
  description     text,
  metadata        jsonb NOT NULL DEFAULT '{}',
  expires_at      timestamptz,
  -- Counts the events of this payment: a change of state without its event can't be committed.
  version         bigint NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  settled_at      timestamptz,
  CONSTRAINT payments_merchant_check CHECK (merchant ~ '^[a-z0-9-]{1,64}$'),
  CONSTRAINT payments_key_check CHECK (idempotency_key ~ '^[\x21-\x7e]{1,255}$'),
  CONSTRAINT payments_accounts_check CHECK (source <> destination),
  CONSTRAINT payments_amount_check CHECK (amount BETWEEN 1 AND 999999999999999999),
  CONSTRAINT payments_amounts_check CHECK (0 <= refunded_amount AND refunded_amount <= captured_amount AND captured_amount <= amount),
  CONSTRAINT payments_capture_check CHECK (capture IN ('automatic', 'manual')),
  CONSTRAINT payments_status_check CHECK (status IN ('pending', 'authorized', 'captured', 'settled', 'failed', 'cancelled', 'voided', 'expired')),
  CONSTRAINT payments_settled_check CHECK ((status = 'settled') = (settled_at IS NOT NULL)),
  CONSTRAINT payments_failed_check CHECK (failure_code IS NULL OR status IN ('failed', 'cancelled', 'voided', 'expired')),
  CONSTRAINT payments_description_check CHECK (char_length(description) <= 500),
  CONSTRAINT payments_version_check CHECK (version > 0),
  CONSTRAINT payments_merchant_key_key UNIQUE (merchant, idempotency_key),
  CONSTRAINT payments_source_fkey FOREIGN KEY (source, currency) REFERENCES remit.accounts (id, currency),
  CONSTRAINT payments_destination_fkey FOREIGN KEY (destination, currency) REFERENCES remit.accounts (id, currency)
) WITH (fillfactor = 80);
--> statement-breakpoint
-- Few payments are open at a time: the supervisor finds those without a workflow here, whatever the history.
CREATE INDEX payments_open_idx ON remit.payments (created_at) WHERE status IN ('pending', 'authorized', 'captured');
--> statement-breakpoint
CREATE TABLE remit.captures (
  id           uuid CONSTRAINT captures_pkey PRIMARY KEY,
  payment_id   uuid NOT NULL CONSTRAINT captures_payment_fkey REFERENCES remit.payments (id),
  amount       bigint NOT NULL,
  final        boolean NOT NULL,
  status       text NOT NULL DEFAULT 'pending',
  failure_code text,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  settled_at   timestamptz,
  CONSTRAINT captures_amount_check CHECK (amount BETWEEN 1 AND 999999999999999999),
  CONSTRAINT captures_status_check CHECK (status IN ('pending', 'settled', 'failed')),
  CONSTRAINT captures_settled_check CHECK ((status = 'settled') = (settled_at IS NOT NULL))
);
--> statement-breakpoint
CREATE INDEX captures_payment_idx ON remit.captures (payment_id);
--> statement-breakpoint
CREATE UNIQUE INDEX captures_one_open_key ON remit.captures (payment_id) WHERE status = 'pending';
--> statement-breakpoint
CREATE TABLE remit.refunds (
  id           uuid CONSTRAINT refunds_pkey PRIMARY KEY,
  payment_id   uuid NOT NULL CONSTRAINT refunds_payment_fkey REFERENCES remit.payments (id),
  amount       bigint NOT NULL,
  currency     char(3) NOT NULL,
  status       text NOT NULL DEFAULT 'pending',
  reason       text,
  failure_code text,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  settled_at   timestamptz,
  CONSTRAINT refunds_amount_check CHECK (amount BETWEEN 1 AND 999999999999999999),
  CONSTRAINT refunds_status_check CHECK (status IN ('pending', 'settled', 'failed')),
  CONSTRAINT refunds_settled_check CHECK ((status = 'settled') = (settled_at IS NOT NULL)),
  CONSTRAINT refunds_reason_check CHECK (char_length(reason) <= 500)
);
--> statement-breakpoint
CREATE INDEX refunds_payment_idx ON remit.refunds (payment_id);
--> statement-breakpoint
CREATE TABLE remit.holds (
  id         uuid CONSTRAINT holds_pkey PRIMARY KEY,
  account_id text COLLATE "C" NOT NULL CONSTRAINT holds_account_fkey REFERENCES remit.accounts (id),
  payment_id uuid NOT NULL CONSTRAINT holds_payment_fkey REFERENCES remit.payments (id),
  refund_id  uuid CONSTRAINT holds_refund_fkey REFERENCES remit.refunds (id),
  amount     bigint NOT NULL,
  remaining  bigint NOT NULL,
  status     text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at  timestamptz,
  CONSTRAINT holds_amount_check CHECK (amount BETWEEN 1 AND 999999999999999999),
  CONSTRAINT holds_remaining_check CHECK (remaining BETWEEN 0 AND amount),
  CONSTRAINT holds_status_check CHECK (status IN ('open', 'closed')),
  CONSTRAINT holds_closed_check CHECK ((status = 'closed') = (remaining = 0) AND (status = 'closed') = (closed_at IS NOT NULL))
) WITH (fillfactor = 80);
--> statement-breakpoint
-- One hold a payment and one a refund: a second one would reserve the same money twice.
CREATE UNIQUE INDEX holds_payment_key ON remit.holds (payment_id) WHERE refund_id IS NULL;
--> statement-breakpoint
CREATE UNIQUE INDEX holds_refund_key ON remit.holds (refund_id);
--> statement-breakpoint
CREATE TABLE remit.idempotency_keys (
  merchant    text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  operation   text NOT NULL,
  fingerprint text NOT NULL,
  request_id  text NOT NULL,
  outcome     jsonb NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (merchant, key),
  CONSTRAINT idempotency_keys_merchant_check CHECK (merchant ~ '^[a-z0-9-]{1,64}$'),
  CONSTRAINT idempotency_keys_key_check CHECK (key ~ '^[\x21-\x7e]{1,255}$'),
  CONSTRAINT idempotency_keys_operation_check CHECK (operation IN ('pay', 'capture', 'void', 'refund')),
  CONSTRAINT idempotency_keys_fingerprint_check CHECK (char_length(fingerprint) BETWEEN 1 AND 128),
  CONSTRAINT idempotency_keys_request_check CHECK (char_length(request_id) BETWEEN 1 AND 64),
  CONSTRAINT idempotency_keys_outcome_check CHECK (outcome ->> 'decision' IN ('accepted', 'refused'))
);
--> statement-breakpoint
CREATE TABLE remit.outbox_heads (
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  shard          smallint NOT NULL,
  last_version   bigint NOT NULL,
  purged_version bigint NOT NULL DEFAULT 0,
  CONSTRAINT outbox_heads_pkey PRIMARY KEY (aggregate_type, aggregate_id),
  CONSTRAINT outbox_heads_shard_check CHECK (shard BETWEEN 0 AND 63),
  CONSTRAINT outbox_heads_versions_check CHECK (0 <= purged_version AND purged_version <= last_version)
) WITH (fillfactor = 70);
--> statement-breakpoint
CREATE TABLE remit.outbox (
  id                uuid CONSTRAINT outbox_pkey PRIMARY KEY,
  aggregate_type    text COLLATE "C" NOT NULL,
  aggregate_id      text COLLATE "C" NOT NULL,
  aggregate_version bigint NOT NULL,
  type              text NOT NULL,
  payload           jsonb NOT NULL,
  headers           jsonb NOT NULL DEFAULT '{}',
  shard             smallint NOT NULL,
  status            text NOT NULL DEFAULT 'PENDING',
  claims            integer NOT NULL DEFAULT 0,
  attempts          integer NOT NULL DEFAULT 0,
  next_attempt_at   timestamptz NOT NULL DEFAULT '-infinity',
  lease_token       uuid,
  lease_until       timestamptz,
  broker_message_id text,
  last_error        text,
  created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  published_at      timestamptz,
  CONSTRAINT outbox_aggregate_type_check CHECK (aggregate_type ~ '^[A-Za-z][A-Za-z0-9_-]{0,63}$'),
  CONSTRAINT outbox_aggregate_id_check CHECK (aggregate_id ~ '^[\x21-\x7e]{1,128}$'),
  CONSTRAINT outbox_type_check CHECK (type ~ '^[A-Za-z][A-Za-z0-9_.-]{0,127}$'),
  -- Far enough below 256 KiB, the limit of SNS for body and attributes together.
  CONSTRAINT outbox_payload_check CHECK (jsonb_typeof(payload) = 'object' AND octet_length(payload::text) <= 240000),
  CONSTRAINT outbox_headers_check CHECK (jsonb_typeof(headers) = 'object' AND octet_length(headers::text) <= 4000),
  CONSTRAINT outbox_shard_check CHECK (shard BETWEEN 0 AND 63),
  CONSTRAINT outbox_status_check CHECK (status IN ('PENDING', 'PUBLISHED', 'DEAD', 'SKIPPED')),
  CONSTRAINT outbox_counts_check CHECK (claims >= 0 AND attempts >= 0),
  CONSTRAINT outbox_lease_check CHECK ((lease_token IS NULL) = (lease_until IS NULL) AND (lease_token IS NULL OR status = 'PENDING')),
  -- The receipt of the broker is data: nothing is published without it.
  CONSTRAINT outbox_receipt_check CHECK (status <> 'PUBLISHED' OR (broker_message_id IS NOT NULL AND published_at IS NOT NULL)),
  CONSTRAINT outbox_error_check CHECK (char_length(last_error) <= 1000),
  CONSTRAINT outbox_aggregate_version_key UNIQUE (aggregate_type, aggregate_id, aggregate_version)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);
--> statement-breakpoint
-- The only partial index on the table: with a second one, statistics taken at an empty queue made a claim 60 times slower.
-- DEAD rows are in it because they block their followers.
CREATE INDEX outbox_open_idx ON remit.outbox (shard, aggregate_type, aggregate_id, aggregate_version) WHERE status IN ('PENDING', 'DEAD');
--> statement-breakpoint
CREATE TABLE remit.inbox (
  consumer     text NOT NULL,
  message_id   uuid NOT NULL,
  type         text NOT NULL,
  payload      jsonb NOT NULL,
  received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at timestamptz,
  outcome      text,
  error        text,
  CONSTRAINT inbox_pkey PRIMARY KEY (consumer, message_id),
  CONSTRAINT inbox_consumer_check CHECK (consumer ~ '^[a-z][a-z0-9-]{0,63}$'),
  CONSTRAINT inbox_outcome_check CHECK (outcome IN ('booked', 'refused')),
  CONSTRAINT inbox_processed_check CHECK ((processed_at IS NULL) = (outcome IS NULL)),
  CONSTRAINT inbox_error_check CHECK (outcome IS NULL OR (outcome = 'refused') = (error IS NOT NULL))
);
--> statement-breakpoint
CREATE TABLE remit.ledger_transactions (
  id         uuid CONSTRAINT ledger_transactions_pkey PRIMARY KEY,
  message_id uuid NOT NULL,
  payment_id uuid NOT NULL CONSTRAINT ledger_transactions_payment_fkey REFERENCES remit.payments (id),
  capture_id uuid CONSTRAINT ledger_transactions_capture_fkey REFERENCES remit.captures (id),
  refund_id  uuid CONSTRAINT ledger_transactions_refund_fkey REFERENCES remit.refunds (id),
  kind       text NOT NULL,
  -- The database transaction that made it: entries come in that one only. (xmin would be wrong under savepoints.)
  xact       xid8 NOT NULL DEFAULT pg_current_xact_id(),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT ledger_transactions_kind_check CHECK (CASE kind
    WHEN 'payment' THEN capture_id IS NULL AND refund_id IS NULL
    WHEN 'capture' THEN capture_id IS NOT NULL AND refund_id IS NULL
    WHEN 'refund' THEN refund_id IS NOT NULL AND capture_id IS NULL
    ELSE false END),
  CONSTRAINT ledger_transactions_message_payment_key UNIQUE (message_id, payment_id),
  CONSTRAINT ledger_transactions_capture_key UNIQUE (capture_id),
  CONSTRAINT ledger_transactions_refund_key UNIQUE (refund_id)
);
--> statement-breakpoint
-- What still refuses a second booking when the inbox has been purged.
CREATE UNIQUE INDEX ledger_transactions_one_payment_key ON remit.ledger_transactions (payment_id) WHERE kind = 'payment';
--> statement-breakpoint
CREATE INDEX ledger_transactions_payment_idx ON remit.ledger_transactions (payment_id);
--> statement-breakpoint
CREATE TABLE remit.ledger_entries (
  id              uuid CONSTRAINT ledger_entries_pkey PRIMARY KEY,
  transaction_id  uuid NOT NULL CONSTRAINT ledger_entries_transaction_fkey REFERENCES remit.ledger_transactions (id),
  account_id      text COLLATE "C" NOT NULL,
  direction       text NOT NULL,
  amount          bigint NOT NULL,
  currency        char(3) NOT NULL,
  balance_after   bigint NOT NULL,
  account_version bigint NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT ledger_entries_direction_check CHECK (direction IN ('debit', 'credit')),
  CONSTRAINT ledger_entries_amount_check CHECK (amount > 0),
  CONSTRAINT ledger_entries_version_check CHECK (account_version > 0),
  CONSTRAINT ledger_entries_account_fkey FOREIGN KEY (account_id, currency) REFERENCES remit.accounts (id, currency),
  CONSTRAINT ledger_entries_account_version_key UNIQUE (account_id, account_version)
);
--> statement-breakpoint
CREATE INDEX ledger_entries_transaction_idx ON remit.ledger_entries (transaction_id);
