import {
  readConnectionUse,
  readHolders,
  readVacuumState,
  seesOtherSessions,
} from "../../database/doctor-queries.ts";
import type { ConnectionUse, Holder } from "../../database/doctor-queries.ts";
import type { DatabaseContext } from "./database.ts";
import { settingFix } from "./setting-fix.ts";
import { fail, ok, warn } from "./check.ts";
import type { Check, Finding } from "./check.ts";

/** Beside its pool a process has one connection for its probes, one for its metrics and one for LISTEN. */
const CONNECTIONS_BESIDE_POOL = 3;
/** No statement of ours takes longer than 5 s. What is open for longer keeps dead rows, and in the end the outbox slow. */
const OPEN_SECONDS_NOTABLE = 60;
const OPEN_SECONDS_MAX = 300;
/** A whole table is locked by nobody of ours but a migration. */
const LOCK_SECONDS_MAX = 3;
/** PostgreSQL stops at 2,000 million, and vacuums by force from 200 million on. */
const FROZEN_AGE_MAX = 1_000_000_000;

/** Whether there is room, and whether what is dead goes away. */
export const LOAD_CHECKS: readonly Check<DatabaseContext>[] = [
  {
    name: "database.connections",
    about: "the pools of all worker processes fit into `max_connections`, and one process more",
    judge: async (context) => judgeConnections(await readConnectionUse(context.session), context),
  },
  {
    name: "database.autovacuum",
    about: "autovacuum runs, on all tables, and no wrap-around is near",
    judge: async ({ session, server, where }) => {
      const off = ["autovacuum", "track_counts"].filter((name) => server[name]?.value !== "on");
      if (off.length > 0) {
        const fixes = off.map((name) =>
          settingFix({ name, to: "on", source: server[name]?.source ?? "" }, where),
        );
        return fail(`${off.join(", ")} off`, fixes.join("; "));
      }
      const { excluded, frozenAge } = await readVacuumState(session);
      if (excluded.length > 0) {
        const statements = excluded.map(
          (table) => `ALTER TABLE remit.${table} RESET (autovacuum_enabled)`,
        );
        return fail(`switched off for ${excluded.join(", ")}`, statements.join("; "));
      }
      if (frozenAge > FROZEN_AGE_MAX) {
        return fail(`${frozenAge} transactions since the last freeze`, "VACUUM (FREEZE)");
      }
      return ok("on, for every table");
    },
  },
  {
    name: "database.held",
    about:
      "no forgotten transaction, prepared transaction or replication slot holds dead rows or the log, and none a whole table",
    judge: async ({ session, where }) => {
      const finding = judgeHolders(await readHolders(session));
      if (finding.status !== "ok" || (await seesOtherSessions(session))) return finding;
      return ok(
        `${finding.found} by ${where.role}; other roles' transactions show after GRANT pg_read_all_stats TO ${where.role}`,
      );
    },
  },
];

function judgeConnections(
  { used, ours, listeners, roleLimit, databaseLimit }: ConnectionUse,
  { server, where, settings }: DatabaseContext,
): Finding {
  const numberOf = (name: string): number => Number(server[name]?.value ?? 0);
  const reserved = numberOf("superuser_reserved_connections") + numberOf("reserved_connections");
  const ofServer = numberOf("max_connections") - reserved;
  const limits = [roleLimit, databaseLimit].filter((limit) => limit >= 0);
  const room = Math.min(ofServer, ...limits);
  const others = used - ours;
  const poolMax = settings.worker.databasePoolMax;
  const each = poolMax + CONNECTIONS_BESIDE_POOL;
  const processes = Math.max(1, listeners);
  const found =
    `room for ${room}, others use ${others}; ` +
    `worker processes: ${processes}, which may open ${each} each`;
  const fix =
    room === roleLimit
      ? `ALTER ROLE ${where.role} CONNECTION LIMIT -1`
      : room === databaseLimit
        ? `ALTER DATABASE ${where.database} CONNECTION LIMIT -1`
        : `raise max_connections and restart PostgreSQL, or lower REMIT_DATABASE_POOL_MAX (${poolMax})`;
  if (processes * each > room - others) return fail(found, fix);
  if ((processes + 1) * each > room - others) {
    return warn(`${found}: none is left for a process more while a new version starts`, fix);
  }
  return ok(found);
}

function judgeHolders(holders: readonly Holder[]): Finding {
  const lock = holders.find(
    ({ kind, ageSeconds }) =>
      kind === "lock" && (ageSeconds ?? LOCK_SECONDS_MAX) >= LOCK_SECONDS_MAX,
  );
  if (lock !== undefined) {
    return fail(
      `${lock.name} stops whoever writes there`,
      `SELECT pg_terminate_backend(${/pid (\d+)/.exec(lock.name)?.[1]})`,
    );
  }
  const slots = holders.filter(({ kind }) => kind === "replication slot");
  const open = holders.filter(
    ({ kind, ageSeconds }) => kind !== "lock" && (ageSeconds ?? 0) > OPEN_SECONDS_NOTABLE,
  );
  const worst = open.toSorted((a, b) => (b.ageSeconds ?? 0) - (a.ageSeconds ?? 0))[0];
  if (worst !== undefined) {
    const seconds = Math.round(worst.ageSeconds ?? 0);
    const found = `${worst.kind} ${worst.name} is open for ${seconds} s`;
    const fix =
      worst.kind === "transaction"
        ? `SELECT pg_terminate_backend(${/\d+/.exec(worst.name)?.[0]})`
        : `ROLLBACK PREPARED '${worst.name}', once it is known whose it is`;
    return seconds > OPEN_SECONDS_MAX ? fail(found, fix) : warn(found, fix);
  }
  const [slot] = slots;
  if (slot !== undefined) {
    return fail(
      `nobody reads replication slot ${slot.name}: the log grows until the disk is full`,
      `start its reader, or SELECT pg_drop_replication_slot('${slot.name}')`,
    );
  }
  return ok("nothing is held");
}
