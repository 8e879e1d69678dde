import { randomBytes } from "node:crypto";
import {
  listenTo,
  notify,
  openDoctorSession,
  readBackendPid,
  readBackendPidSlowly,
} from "../../database/doctor-queries.ts";
import type { DoctorSession, WhereWeAre } from "../../database/doctor-queries.ts";
import { SESSION_TIMEOUTS } from "../../database/database.ts";
import type { DatabaseContext, ServerSettings } from "./database.ts";
import { THEN_RESTART, settingFix } from "./setting-fix.ts";
import { fail, ok, warn } from "./check.ts";
import type { Check, Finding } from "./check.ts";

/** So many hold a process of the server each, for so long; one of them takes ours where we have none of our own. */
const NEIGHBOURS = 3;
const HOLD_SECONDS = 0.3;
const HEAR_MS_MAX = 2_000;
const SESSION_MODE =
  "put the pooler into session mode, or connect to PostgreSQL itself: DATABASE_URL";

/** Whether a connection is a session, and stays one: a pooler between changes that in silence. */
export const SESSION_CHECKS: readonly Check<DatabaseContext>[] = [
  {
    name: "database.session",
    about: "a connection keeps its session: no pooler in transaction mode is between",
    judge: async ({ settings }) =>
      await withSessions(settings.databaseUrl, 1 + NEIGHBOURS, judgeSession),
  },
  {
    name: "database.listen",
    about: "a commit can wake the relay: LISTEN hears another session",
    judge: async ({ settings }) => await withSessions(settings.databaseUrl, 2, judgeListen),
  },
  {
    name: "database.timeouts",
    about: "the time limits that each connection asks for are in force",
    judge: ({ server, where }) => judgeTimeouts(server, where),
  },
];

async function judgeSession(sessions: readonly DoctorSession[]): Promise<Finding> {
  const [ours, ...neighbours] = sessions;
  if (ours === undefined) throw new Error("no session was opened");
  const before = await readBackendPid(ours);
  const holding = neighbours.map(
    async (neighbour) => await readBackendPidSlowly(neighbour, HOLD_SECONDS),
  );
  const after = await readBackendPid(ours);
  const held = await Promise.all(holding);
  if (before === after && !held.includes(before)) return ok("a session of its own");
  return warn(
    "the server's process changes between statements: a pooler in transaction mode",
    SESSION_MODE,
  );
}

async function judgeListen([ours, other]: readonly DoctorSession[]): Promise<Finding> {
  if (ours === undefined || other === undefined) throw new Error("no session was opened");
  // A channel of its own: nobody else is woken by it.
  const channel = `remit_doctor_${randomBytes(6).toString("hex")}`;
  await listenTo(ours, channel);
  const heard = ours.hears(channel, HEAR_MS_MAX);
  await notify(other, channel);
  if (await heard) return ok("a session hears another one");
  return warn(
    "LISTEN is deaf, so the relay only polls: an event waits REMIT_POLL_INTERVAL_MS",
    SESSION_MODE,
  );
}

function judgeTimeouts(server: ServerSettings, where: WhereWeAre): Finding {
  const swallowed = Object.entries(SESSION_TIMEOUTS).filter(
    ([name, ms]) => server[name]?.value !== String(ms),
  );
  if (swallowed.length > 0) {
    const found = swallowed.map(
      ([name, ms]) => `${name} is ${server[name]?.value} ms instead of ${ms}`,
    );
    const statements = swallowed.map(
      ([name, ms]) => `ALTER ROLE ${where.role} SET ${name} = ${ms}`,
    );
    return fail(
      `${found.join(", ")}: a pooler swallows what a connection asks for`,
      statements.join("; ") + THEN_RESTART,
    );
  }
  const name = "idle_session_timeout";
  const { value = "0", source = "" } = server[name] ?? {};
  if (value === "0") return ok("statement, lock and idle transaction are bounded");
  return warn(
    `${name} ends a quiet connection after ${value} ms, LISTEN too`,
    settingFix({ name, to: "0", source }, where),
  );
}

async function withSessions(
  url: string,
  count: number,
  work: (sessions: readonly DoctorSession[]) => Promise<Finding>,
): Promise<Finding> {
  const sessions: DoctorSession[] = [];
  try {
    for (let opened = 0; opened < count; opened += 1) sessions.push(await openDoctorSession(url));
    return await work(sessions);
  } finally {
    await Promise.all(sessions.map(async ({ close }) => await close()));
  }
}
