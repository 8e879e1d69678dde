import type { Settings } from "../../config/settings.ts";
import { DatabaseError } from "../../database/database-error.ts";
import { SESSION_TIMEOUTS } from "../../database/database.ts";
import {
  openDoctorSession,
  readServerSettings,
  readWhereWeAre,
} from "../../database/doctor-queries.ts";
import type { DoctorSession, ServerSetting, WhereWeAre } from "../../database/doctor-queries.ts";
import { migrationStatus } from "../../database/migrate.ts";
import { DomainError } from "../../domain/errors.ts";
import { judgeClock } from "./clock.ts";
import { LOAD_CHECKS } from "./database-load.ts";
import { RIGHTS_CHECKS } from "./database-rights.ts";
import { settingFix } from "./setting-fix.ts";
import { SESSION_CHECKS } from "./database-session.ts";
import { fail, notJudged, ok } from "./check.ts";
import type { Check, CheckGroup, Finding } from "./check.ts";

export type ServerSettings = Readonly<Record<string, ServerSetting>>;

export interface DatabaseContext {
  readonly settings: Settings;
  readonly session: DoctorSession;
  readonly server: ServerSettings;
  readonly where: WhereWeAre;
  /** This machine's clock, as ms since the epoch. */
  readonly now: () => number;
}

const SERVER_SETTINGS = [
  "server_version",
  "server_version_num",
  "fsync",
  "full_page_writes",
  "synchronous_commit",
  "default_transaction_isolation",
  "default_transaction_read_only",
  "session_replication_role",
  "idle_session_timeout",
  "autovacuum",
  "track_counts",
  "max_connections",
  "superuser_reserved_connections",
  "reserved_connections",
  ...Object.keys(SESSION_TIMEOUTS),
];

/** 15: the first that our SQL and its rules were run on. */
const VERSION_LEAST = 150_000;

const CHECKS: readonly Check<DatabaseContext>[] = [
  {
    name: "database.version",
    about: "PostgreSQL 15 or newer",
    judge: ({ server }) =>
      Number(server["server_version_num"]?.value) >= VERSION_LEAST
        ? ok(`PostgreSQL ${server["server_version"]?.value}`)
        : fail(
            `PostgreSQL ${server["server_version"]?.value}`,
            "upgrade the server to 15 or newer",
          ),
  },
  {
    name: "database.migrations",
    about: "all migrations have run, and none was edited afterwards",
    judge: async ({ settings }) => await judgeMigrations(settings),
  },
  {
    name: "database.durability",
    about: "a commit survives a crash: `fsync`, `full_page_writes`, `synchronous_commit`",
    judge: ({ server, where }) => judgeDurability(server, where),
  },
  {
    name: "database.writable",
    about: "it is no standby and takes writes",
    judge: ({ server, where }) => judgeWritable(server, where),
  },
  {
    name: "database.isolation",
    about: "transactions are READ COMMITTED, as the locks and guards expect",
    judge: ({ server, where }) => {
      const name = "default_transaction_isolation";
      const level = server[name];
      if (level === undefined || level.value === "read committed") return ok("READ COMMITTED");
      return fail(
        `${name} is ${level.value}`,
        settingFix({ name, to: "read committed", source: level.source }, where),
      );
    },
  },
  {
    name: "database.clock",
    about: "PostgreSQL's clock and this machine's agree within seconds",
    judge: judgeClock,
  },
  ...RIGHTS_CHECKS,
  ...SESSION_CHECKS,
  ...LOAD_CHECKS,
];

/** The checks of PostgreSQL, as the application's role. */
export function databaseGroup(
  settings: Settings | null,
  { now }: { now: () => number },
): CheckGroup<DatabaseContext> {
  return {
    reach: { name: "database.reachable", about: "PostgreSQL lets the application's role in" },
    checks: CHECKS,
    open: async () => {
      if (settings === null || settings.databaseUrl === "") throw new NoTargetError();
      const session = await openDoctorSession(settings.databaseUrl);
      const server = await readServerSettings(session, SERVER_SETTINGS);
      const where = await readWhereWeAre(session);
      return {
        context: { settings, session, server, where, now },
        found: `${addressOf(settings.databaseUrl)}, as ${where.role}`,
        close: session.close,
      };
    },
    explain: (error) => explain(error, settings?.databaseUrl ?? ""),
  };
}

class NoTargetError extends Error {}

function explain(error: unknown, url: string): Finding {
  if (error instanceof NoTargetError) return notJudged("DATABASE_URL is missing or wrong");
  if (error instanceof DatabaseError) {
    if (/^(42P01|3F000|42704|42883)$/.test(error.sqlState)) {
      return notJudged("the schema remit is missing or incomplete, see database.migrations");
    }
    return fail(`PostgreSQL refuses the question (${error.message})`, "see PostgreSQL's log");
  }
  if (error instanceof DomainError && error.code === "database_unreachable") {
    return fail(`${error.message} at ${addressOf(url)}`, fixOf(error));
  }
  if (error instanceof DomainError) return fail(error.message, "mend what is named");
  return fail("the question failed unexpectedly", "report it with the version of PostgreSQL");
}

/** By the driver's code, which says more than that nobody is there. */
function fixOf({ message }: DomainError): string {
  if (/28P01|28000/.test(message)) {
    return "mend user, password or pg_hba.conf: DATABASE_URL and ALTER ROLE … PASSWORD";
  }
  if (message.includes("3D000"))
    return "create the database (deploy/roles.sql), or mend its name in DATABASE_URL";
  if (message.includes("42501")) return "GRANT CONNECT ON DATABASE … TO remit_app";
  if (message.includes("08P01")) {
    const names = [...Object.keys(SESSION_TIMEOUTS), "options"];
    return `in the pooler: ignore_startup_parameters = ${names.join(", ")}`;
  }
  if (message.includes("53300")) return "raise max_connections, or lower REMIT_DATABASE_POOL_MAX";
  return "start PostgreSQL, or mend host and port in DATABASE_URL; then the firewall between";
}

/** Host, port and database: no user's password. */
function addressOf(url: string): string {
  if (!URL.canParse(url)) return "(no address)";
  const { hostname, port, pathname } = new URL(url);
  return `${hostname}:${port === "" ? "5432" : port}${pathname}`;
}

async function judgeMigrations({ databaseUrl }: Settings): Promise<Finding> {
  try {
    const { applied, pending, unknown } = await migrationStatus({ adminDatabaseUrl: databaseUrl });
    if (pending.length > 0) return fail(`not applied: ${pending.join(", ")}`, "remit migrate up");
    const newer =
      unknown === 0 ? "" : `; ${unknown} more of a newer version, which this one doesn't know`;
    return ok(`${applied.length} applied${newer}`);
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== "usage") throw error;
    return fail(
      error.message,
      "git checkout the file of the release that ran, then a new migration",
    );
  }
}

function judgeDurability(server: ServerSettings, where: WhereWeAre): Finding {
  const off = ["fsync", "full_page_writes", "synchronous_commit"].filter(
    (name) => server[name]?.value === "off",
  );
  if (off.length === 0) return ok(`synchronous_commit is ${server["synchronous_commit"]?.value}`);
  const fixes = off.map((name) =>
    settingFix({ name, to: "on", source: server[name]?.source ?? "" }, where),
  );
  return fail(
    `${off.join(", ")} off: a crash may lose payments that were accepted`,
    [...new Set(fixes)].join("; "),
  );
}

function judgeWritable(server: ServerSettings, where: WhereWeAre): Finding {
  if (where.isStandby) {
    return fail("it is a standby", "name the primary's host in DATABASE_URL");
  }
  const name = "default_transaction_read_only";
  const readOnly = server[name];
  if (readOnly === undefined || readOnly.value === "off") return ok("a primary that takes writes");
  return fail(`${name} is on`, settingFix({ name, to: "off", source: readOnly.source }, where));
}
