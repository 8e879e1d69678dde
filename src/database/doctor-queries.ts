import { Client } from "pg";
import type { QueryResultRow } from "pg";
import { databaseError } from "./database-error.ts";
import { SESSION_TIMEOUTS } from "./database.ts";

/** What `remit doctor` asks of PostgreSQL; it reads, listens, and changes nothing. */

/**
 * One connection with the time-outs that a worker's connections ask for. Its statements have no name: behind a pooler in
 * transaction mode a name may be taken by another session, and the doctor must get through to say so.
 */
export interface DoctorSession {
  readonly run: <Row extends QueryResultRow>(
    text: string,
    values?: readonly unknown[],
  ) => Promise<Row[]>;
  /** Resolves with whether a notification of this channel comes in time. */
  readonly hears: (channel: string, timeoutMs: number) => Promise<boolean>;
  readonly close: () => Promise<void>;
}

const CONNECT_MS_MAX = 4_000;
const ANSWER_MS_MAX = 6_000;

/** @throws DomainError `database_unreachable`, whose cause has the driver's code */
export async function openDoctorSession(url: string): Promise<DoctorSession> {
  const client = new Client({
    connectionString: url,
    application_name: "remit-doctor",
    connectionTimeoutMillis: CONNECT_MS_MAX,
    query_timeout: ANSWER_MS_MAX,
    ...SESSION_TIMEOUTS,
  });
  client.on("error", () => undefined);
  const asOurs = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      throw databaseError(error);
    }
  };
  await asOurs(async () => await client.connect());
  // The checks ask at the same time, and a session answers one question after the other.
  let previous: Promise<unknown> = Promise.resolve();
  const inTurn = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    const mine = previous.then(async () => await asOurs(work));
    previous = mine.catch(() => undefined);
    return await mine;
  };
  return {
    run: async <Row extends QueryResultRow>(text: string, values: readonly unknown[] = []) =>
      (await inTurn(async () => await client.query<Row>(text, [...values]))).rows,
    hears: async (channel, timeoutMs) =>
      await new Promise<boolean>((settle) => {
        const timer = setTimeout(() => settle(false), timeoutMs);
        client.on("notification", (notification) => {
          if (notification.channel !== channel) return;
          clearTimeout(timer);
          settle(true);
        });
      }),
    close: async () => {
      await client.end();
    },
  };
}

export interface ServerSetting {
  /** As it holds in this session, numbers in their base unit. */
  readonly value: string;
  /** PostgreSQL's word for where it comes from: `default`, `configuration file`, `database`, `user`, `client`… */
  readonly source: string;
}

export async function readServerSettings(
  { run }: DoctorSession,
  names: readonly string[],
): Promise<Readonly<Record<string, ServerSetting>>> {
  const rows = await run<{ name: string; value: string; source: string }>(
    `SELECT name, setting AS value, source
       FROM pg_settings
      WHERE name = ANY ($1::text[])`,
    [names],
  );
  return Object.fromEntries(rows.map(({ name, value, source }) => [name, { value, source }]));
}

/** The names as they stand in SQL, with quotation marks where they need them. */
export interface WhereWeAre {
  readonly role: string;
  readonly database: string;
  readonly isStandby: boolean;
}

export async function readWhereWeAre({ run }: DoctorSession): Promise<WhereWeAre> {
  const [row] = await run<{ role: string; database: string; isStandby: boolean }>(
    `SELECT quote_ident(current_user) AS role,
            quote_ident(current_database()) AS database,
            pg_is_in_recovery() AS "isStandby"`,
  );
  if (row === undefined) throw new Error("a query without a table returned no row");
  return row;
}

/** The time there, as ms since the epoch. */
export async function readClock({ run }: DoctorSession): Promise<number> {
  const [row] = await run<{ ms: string }>(
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms",
  );
  return Number(row?.ms);
}

export async function readBackendPid({ run }: DoctorSession): Promise<number> {
  const [row] = await run<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  return row?.pid ?? 0;
}

/** The same, and keeps the server's process for a moment: a session that has none of its own must then take another one. */
export async function readBackendPidSlowly(
  { run }: DoctorSession,
  seconds: number,
): Promise<number> {
  const [row] = await run<{ pid: number }>(
    "SELECT pg_backend_pid() AS pid, pg_sleep($1::double precision)::text AS slept",
    [seconds],
  );
  return row?.pid ?? 0;
}

export async function listenTo({ run }: DoctorSession, channel: string): Promise<void> {
  await run(`LISTEN ${channel}`);
}

export async function notify({ run }: DoctorSession, channel: string): Promise<void> {
  await run(`NOTIFY ${channel}`);
}

export interface RoleAttributes {
  readonly isSuperuser: boolean;
  readonly mayCreateRoles: boolean;
  readonly bypassesRowSecurity: boolean;
  readonly mayReplicate: boolean;
  readonly isOwner: boolean;
  readonly isApplication: boolean;
}

export async function readRole({ run }: DoctorSession): Promise<RoleAttributes | null> {
  const [row] = await run<RoleAttributes & QueryResultRow>(
    `SELECT r.rolsuper AS "isSuperuser",
            r.rolcreaterole AS "mayCreateRoles",
            r.rolbypassrls AS "bypassesRowSecurity",
            r.rolreplication AS "mayReplicate",
            pg_has_role(r.oid, owner.oid, 'MEMBER') AS "isOwner",
            pg_has_role(r.oid, app.oid, 'USAGE') AS "isApplication"
       FROM pg_roles r
       JOIN pg_roles owner ON owner.rolname = 'remit_owner'
       JOIN pg_roles app ON app.rolname = 'remit_app'
      WHERE r.rolname = current_user`,
  );
  return row ?? null;
}

export interface RightsDifference {
  /** Table, column or function, with the privilege: `accounts.posted UPDATE`. */
  readonly extra: readonly string[];
  readonly missing: readonly string[];
  /** Roles beside remit_app that this one belongs to. */
  readonly otherMemberships: readonly string[];
}

/** Compares what this role may do in the schema with what the migrations give to remit_app, privilege by privilege. */
export async function compareRights({ run }: DoctorSession): Promise<RightsDifference> {
  const rows = await run<{ what: string; mine: boolean }>(
    `WITH compared AS (
       SELECT format('%s.%s %s', c.relname, a.attname, p.privilege) AS what,
              has_column_privilege(current_user, c.oid, a.attnum, p.privilege) AS mine,
              has_column_privilege('remit_app', c.oid, a.attnum, p.privilege) AS app
         FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE')) p (privilege)
        WHERE c.relnamespace = 'remit'::regnamespace AND c.relkind IN ('r', 'p', 'v')
        UNION ALL
       SELECT format('%s %s', c.relname, p.privilege),
              has_table_privilege(current_user, c.oid, p.privilege),
              has_table_privilege('remit_app', c.oid, p.privilege)
         FROM pg_class c
        CROSS JOIN (VALUES ('DELETE'), ('TRUNCATE'), ('TRIGGER'), ('REFERENCES')) p (privilege)
        WHERE c.relnamespace = 'remit'::regnamespace AND c.relkind IN ('r', 'p', 'v')
        UNION ALL
       SELECT format('%s() EXECUTE', f.proname),
              has_function_privilege(current_user, f.oid, 'EXECUTE'),
              has_function_privilege('remit_app', f.oid, 'EXECUTE')
         FROM pg_proc f
        WHERE f.pronamespace = 'remit'::regnamespace
     )
     SELECT what, mine
       FROM compared
      WHERE mine <> app
      ORDER BY what`,
  );
  const memberships = await run<{ name: string }>(
    `SELECT quote_ident(g.rolname) AS name
       FROM pg_auth_members m
       JOIN pg_roles g ON g.oid = m.roleid
       JOIN pg_roles r ON r.oid = m.member
      WHERE r.rolname = current_user AND g.rolname <> 'remit_app'
      ORDER BY g.rolname`,
  );
  const of = (mine: boolean): string[] =>
    rows.filter((row) => row.mine === mine).map(({ what }) => what);
  return {
    extra: of(true),
    missing: of(false),
    otherMemberships: memberships.map(({ name }) => name),
  };
}

/** What isn't as it should be, and the statements that mend it. */
export interface Defect {
  readonly what: string;
  readonly fix: string;
}

/**
 * What nobody but the owner may ever do, of what remit_app may do: someone has granted it to remit_app or to PUBLIC. A
 * right on a whole table takes those on its columns with it when it is revoked, so these are given back.
 */
export async function forbiddenRights({ run }: DoctorSession): Promise<Defect[]> {
  return await run<Defect & QueryResultRow>(
    `SELECT format('%s.%s UPDATE', c.relname, a.attname) AS what,
            CASE WHEN has_table_privilege('remit_app', c.oid, 'UPDATE')
                 THEN concat(format('REVOKE UPDATE ON remit.%I FROM remit_app, PUBLIC', c.relname),
                             (SELECT format('; GRANT UPDATE (%s) ON remit.%I TO remit_app', string_agg(quote_ident(k.attname), ', ' ORDER BY k.attnum), c.relname)
                                FROM pg_attribute k
                               CROSS JOIN aclexplode(k.attacl) g
                               WHERE k.attrelid = c.oid AND g.grantee = 'remit_app'::regrole AND g.privilege_type = 'UPDATE'
                              HAVING count(*) > 0))
                 ELSE format('REVOKE UPDATE (%I) ON remit.%I FROM remit_app, PUBLIC', a.attname, c.relname)
             END AS fix
       FROM (VALUES ('accounts', 'posted'), ('accounts', 'held'), ('accounts', 'version'), ('ledger_entries', 'amount'),
                    ('ledger_transactions', 'payment_id'), ('payments', 'amount'), ('outbox', 'payload')) p (relation, attribute)
       JOIN pg_class c ON c.relname = p.relation AND c.relnamespace = 'remit'::regnamespace
       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = p.attribute
      WHERE has_column_privilege('remit_app', c.oid, a.attnum, 'UPDATE')
      UNION ALL
     SELECT format('%s DELETE', c.relname),
            format('REVOKE DELETE ON remit.%I FROM remit_app, PUBLIC', c.relname)
       FROM pg_class c
      WHERE c.relnamespace = 'remit'::regnamespace
        AND c.relname IN ('accounts', 'payments', 'ledger_entries', 'ledger_transactions', 'idempotency_keys', 'operator_actions')
        AND has_table_privilege('remit_app', c.oid, 'DELETE')
      ORDER BY 1`,
  );
}

/** Triggers that don't fire and indexes that don't hold: what the database should refuse would pass. */
export async function disabledGuards({ run }: DoctorSession): Promise<Defect[]> {
  return await run<Defect & QueryResultRow>(
    `SELECT format('trigger %s of %s is disabled', t.tgname, c.relname) AS what,
            format('ALTER TABLE remit.%I ENABLE TRIGGER %I', c.relname, t.tgname) AS fix
       FROM pg_trigger t
       JOIN pg_class c ON c.oid = t.tgrelid
      WHERE c.relnamespace = 'remit'::regnamespace AND t.tgenabled IN ('D', 'R')
      UNION ALL
     SELECT format('index %s is invalid', x.relname),
            format('REINDEX INDEX remit.%I', x.relname)
       FROM pg_index i
       JOIN pg_class x ON x.oid = i.indexrelid
      WHERE x.relnamespace = 'remit'::regnamespace AND NOT i.indisvalid
      ORDER BY 1`,
  );
}

export interface ConnectionUse {
  /** Client sessions of this server, of whatever database. */
  readonly used: number;
  /** Of those: the workers' and this doctor's. */
  readonly ours: number;
  /** Processes with a relay: each has one LISTEN session. */
  readonly listeners: number;
  /** -1: no limit of its own. */
  readonly roleLimit: number;
  readonly databaseLimit: number;
}

export async function readConnectionUse({ run }: DoctorSession): Promise<ConnectionUse> {
  const [row] = await run<ConnectionUse & QueryResultRow>(
    `SELECT count(*)::int AS used,
            count(*) FILTER (WHERE s.application_name LIKE 'remit-%' AND s.datname = current_database())::int AS ours,
            count(*) FILTER (WHERE s.application_name = 'remit-listen' AND s.datname = current_database())::int AS listeners,
            (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS "roleLimit",
            (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS "databaseLimit"
       FROM pg_stat_activity s
      WHERE s.datid IS NOT NULL`,
  );
  if (row === undefined) throw new Error("a count returned no row");
  return row;
}

export interface VacuumState {
  /** Tables of ours that autovacuum was told to leave alone. */
  readonly excluded: readonly string[];
  /** Transactions since the oldest row of this database was frozen; at two thousand million it stops. */
  readonly frozenAge: number;
}

export async function readVacuumState({ run }: DoctorSession): Promise<VacuumState> {
  const [row] = await run<{ excluded: string[]; frozenAge: number }>(
    `SELECT ARRAY(SELECT c.relname::text
                    FROM pg_class c
                   WHERE c.relnamespace = 'remit'::regnamespace
                     AND c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
                   ORDER BY c.relname) AS excluded,
            (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()) AS "frozenAge"`,
  );
  return row ?? { excluded: [], frozenAge: 0 };
}

/** What keeps dead rows, locks or the log from going away, and since when. */
export interface Holder {
  readonly kind: "transaction" | "prepared transaction" | "replication slot" | "lock";
  readonly name: string;
  /** Null for a slot, which has no beginning, and for a lock of a session that this role doesn't see into. */
  readonly ageSeconds: number | null;
}

/** Whether this role sees since when other roles' sessions have a transaction open; those that it doesn't see aren't named. */
export async function seesOtherSessions({ run }: DoctorSession): Promise<boolean> {
  const [row] = await run<{ sees: boolean }>(
    "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees",
  );
  return row?.sees ?? false;
}

export async function readHolders({ run }: DoctorSession): Promise<Holder[]> {
  return await run<Holder & QueryResultRow>(
    `SELECT 'transaction' AS kind,
            format('pid %s (%s)', s.pid, s.application_name) AS name,
            extract(epoch FROM clock_timestamp() - s.xact_start)::float8 AS "ageSeconds"
       FROM pg_stat_activity s
      WHERE s.xact_start IS NOT NULL AND s.pid <> pg_backend_pid() AND s.datname = current_database()
        AND s.backend_type = 'client backend'
      UNION ALL
     SELECT 'prepared transaction', p.gid, extract(epoch FROM clock_timestamp() - p.prepared)::float8
       FROM pg_prepared_xacts p
      WHERE p.database = current_database()
      UNION ALL
     SELECT 'replication slot', r.slot_name, NULL
       FROM pg_replication_slots r
      WHERE NOT r.active AND (r.restart_lsn IS NOT NULL OR r.xmin IS NOT NULL OR r.catalog_xmin IS NOT NULL)
      UNION ALL
     SELECT 'lock', format('%s on %s of pid %s (%s)', l.mode, c.relname, l.pid, s.application_name), extract(epoch FROM clock_timestamp() - s.xact_start)::float8
       FROM pg_locks l
       JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = 'remit'::regnamespace
       LEFT JOIN pg_stat_activity s ON s.pid = l.pid
      WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')`,
  );
}
