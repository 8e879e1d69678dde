-- The application may write what it decides and nothing that is derived. remit_read sees, and changes nothing. Captures
-- and refunds can't be written at all: the migration that brings their rules grants that.
GRANT USAGE ON SCHEMA remit TO remit_app, remit_read;
--> statement-breakpoint
GRANT SELECT ON ALL TABLES IN SCHEMA remit TO remit_app, remit_read;
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
--> statement-breakpoint
GRANT INSERT (id, kind, currency, overdraft, metadata), UPDATE (status, metadata) ON remit.accounts TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, description, metadata, expires_at, version),
      UPDATE (status, captured_amount, failure_code, version, updated_at, settled_at)
   ON remit.payments TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, account_id, payment_id, amount), UPDATE (remaining) ON remit.holds TO remit_app;
--> statement-breakpoint
GRANT INSERT (merchant, key, operation, fingerprint, request_id, outcome), UPDATE (outcome) ON remit.idempotency_keys TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers),
      UPDATE (status, claims, attempts, next_attempt_at, lease_token, lease_until, broker_message_id, last_error, published_at),
      DELETE
   ON remit.outbox TO remit_app;
--> statement-breakpoint
GRANT INSERT (consumer, message_id, type, payload, processed_at, outcome, error), UPDATE (processed_at, outcome, error), DELETE ON remit.inbox TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, message_id, payment_id, kind) ON remit.ledger_transactions TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, transaction_id, account_id, direction, amount, currency) ON remit.ledger_entries TO remit_app;
