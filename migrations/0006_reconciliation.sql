-- What each look at the books found. Drift is never corrected by a program: a person acknowledges it, with a reason.
CREATE TABLE remit.reconciliations (
  id                   uuid CONSTRAINT reconciliations_pkey PRIMARY KEY,
  scope                text NOT NULL,
  started_at           timestamptz NOT NULL,
  finished_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  ok                   boolean NOT NULL,
  pending_beyond_grace bigint NOT NULL,
  invariants           jsonb NOT NULL,
  CONSTRAINT reconciliations_scope_check CHECK (scope IN ('recent', 'full')),
  CONSTRAINT reconciliations_time_check CHECK (started_at <= finished_at),
  CONSTRAINT reconciliations_invariants_check CHECK (jsonb_typeof(invariants) = 'array')
);
--> statement-breakpoint
CREATE INDEX reconciliations_scope_finished_idx ON remit.reconciliations (scope, finished_at);
--> statement-breakpoint
-- A broken row in the words of `verify`. One that changes is another finding, so that an acknowledged one hides no growth.
CREATE TABLE remit.findings (
  id              uuid CONSTRAINT findings_pkey PRIMARY KEY,
  invariant       smallint NOT NULL,
  what            text NOT NULL,
  first_seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  cleared_at      timestamptz,
  acknowledged_at timestamptz,
  acknowledged_by text,
  reason          text,
  CONSTRAINT findings_invariant_check CHECK (invariant BETWEEN 1 AND 99),
  CONSTRAINT findings_what_check CHECK (char_length(what) BETWEEN 1 AND 2000),
  CONSTRAINT findings_acknowledged_check CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL) AND (acknowledged_at IS NULL) = (reason IS NULL)),
  CONSTRAINT findings_acknowledged_by_check CHECK (char_length(acknowledged_by) BETWEEN 1 AND 200),
  CONSTRAINT findings_reason_check CHECK (char_length(reason) BETWEEN 1 AND 500)
);
--> statement-breakpoint
CREATE UNIQUE INDEX findings_open_key ON remit.findings (invariant, md5(what)) WHERE cleared_at IS NULL;
--> statement-breakpoint
-- What was found stays found, and what a person said about it stays said.
CREATE FUNCTION remit.finding_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'finding % is over or acknowledged, which stays', old.id
    USING errcode = '23514', constraint = 'findings_stay_check';
END $$;
--> statement-breakpoint
CREATE TRIGGER findings_stay BEFORE UPDATE ON remit.findings FOR EACH ROW
  WHEN (old.cleared_at IS NOT NULL
        OR old.acknowledged_at IS NOT NULL AND (new.acknowledged_at, new.acknowledged_by, new.reason) IS DISTINCT FROM (old.acknowledged_at, old.acknowledged_by, old.reason))
  EXECUTE FUNCTION remit.finding_stays();
--> statement-breakpoint
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
--> statement-breakpoint
GRANT SELECT ON remit.reconciliations, remit.findings TO remit_app, remit_read;
--> statement-breakpoint
GRANT INSERT (id, scope, started_at, ok, pending_beyond_grace, invariants), DELETE ON remit.reconciliations TO remit_app;
--> statement-breakpoint
GRANT INSERT (id, invariant, what),
      UPDATE (last_seen_at, cleared_at, acknowledged_at, acknowledged_by, reason)
   ON remit.findings TO remit_app;
