-- The ledger books from the row: one that names its payment in another spelling, or none, is no event of ours.
CREATE TRIGGER outbox_own_id BEFORE INSERT ON remit.outbox
  FOR EACH ROW WHEN (new.aggregate_type IN ('payment', 'refund')
                     AND (new.aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                          AND (new.type <> 'payment.captured' OR new.payload #>> '{data,captureId}' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')) IS NOT TRUE)
  EXECUTE FUNCTION remit.outbox_refuse('outbox_aggregate_id_check', 'an event of a payment or refund names it, and a capture its own, by a UUID in lower case');
--> statement-breakpoint
-- What the looks of the nights said is what an auditor asks for.
CREATE FUNCTION remit.reconciliation_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'reconciliation % was a full one or found a break, which stays', old.id
    USING errcode = '23514', constraint = 'reconciliations_stay_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER reconciliations_stay BEFORE DELETE ON remit.reconciliations
  FOR EACH ROW WHEN (old.scope = 'full' OR NOT old.ok) EXECUTE FUNCTION remit.reconciliation_stays();
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
