import { withClient } from "../src/local/postgres.ts";
import { countOutOfOrder } from "./checks.ts";
import { endSessions, withoutNotify } from "./disturbances.ts";
import type { Fleet } from "./fleet.ts";
import { pause } from "./pause.ts";
import type { Stage } from "./scenarios.ts";

/** Remit as it would be without one of its rules: what the planted faults break on the wire. */

/** Until a row was marked by a relay that had lost it, after its successor. */
export async function markWithoutToken(stage: Stage): Promise<void> {
  const { stack, fleet, failpoints, fault, signal } = stage;
  const isOutOfOrder = async (): Promise<boolean> =>
    (await withClient(stack.adminDatabaseUrl, countOutOfOrder)) > 0;
  await whileRewritten(stage, withoutToken, async () => {
    for (let frozen = 0; frozen < FROZEN_MAX && !signal.aborted; frozen += 1) {
      const struck = failpoints.arm(
        { when: "before", step: "mark" },
        {
          nth: 1,
          strike: async (workerName) => {
            const pid = fleet.workers().find(({ name }) => name === workerName)?.pid;
            if (pid === undefined) return "drop";
            fault();
            process.kill(pid, "SIGSTOP");
            await untilOthersPublished(stage).finally(() => process.kill(pid, "SIGCONT"));
            return "pass";
          },
        },
      );
      await Promise.race([struck, pause(STRUCK_MS_MAX, signal)]);
      failpoints.disarm();
      await pause(LOOK_AGAIN_MS, signal);
      if (await isOutOfOrder()) return;
    }
  });
}

/** All that was there at this moment, and so the followers of what the frozen relay holds. */
async function untilOthersPublished({ stack, signal }: Stage): Promise<void> {
  const endsAt = Date.now() + OTHERS_MS_MAX;
  await pause(FOLLOWERS_MS, signal);
  await withClient(stack.adminDatabaseUrl, async (client) => {
    const { rows: now } = await client.query<{ now: Date }>("SELECT now()");
    for (;;) {
      const { rows } = await client.query(
        "SELECT FROM remit.outbox WHERE status = 'PENDING' AND created_at <= $1 LIMIT 1",
        [now[0]?.now],
      );
      if (rows.length === 0 || Date.now() >= endsAt || signal.aborted) return;
      await pause(LOOK_AGAIN_MS, signal);
    }
  });
}

const FROZEN_MAX = 5;
const FOLLOWERS_MS = 2_000;
const OTHERS_MS_MAX = 30_000;
const STRUCK_MS_MAX = 60_000;
const LOOK_AGAIN_MS = 300;

function withoutToken(sql: string): string {
  return sql.includes("SET status = 'PUBLISHED'")
    ? sql.replace("o.lease_token = $3", "$3::text IS NOT NULL")
    : sql;
}

/** The longest that a worker can be told. */
const POLL_MS_MAX = 60_000;
const NOTIFICATIONS_LOST_MS = 2_500;

/** The relay doesn't look by itself, and nobody tells it. */
export async function onlyNotify({ fleet, traffic, fault, signal }: Stage): Promise<void> {
  await setPollInterval(fleet, POLL_MS_MAX);
  traffic.rewriteSql = withoutNotify;
  fault();
  await pause(NOTIFICATIONS_LOST_MS, signal);
}

/** Null: what they are told otherwise. */
export async function setPollInterval(fleet: Fleet, ms: number | null): Promise<void> {
  const env = ms === null ? {} : { REMIT_POLL_INTERVAL_MS: String(ms) };
  await Promise.all(fleet.workers("relay").map(async ({ name }) => await fleet.replace(name, env)));
}

/** As if the inbox row were committed by itself and what follows were rolled back. */
export async function inboxWithoutBooking(stage: Stage): Promise<void> {
  const { stack, fault, signal } = stage;
  // With its judge PostgreSQL refuses the commit, and nothing is lost.
  await withClient(stack.adminDatabaseUrl, async (client) => {
    await client.query("DROP TRIGGER inbox_decided ON remit.inbox");
  });
  await whileRewritten(stage, withoutBooking, async () => {
    fault();
    await withClient(stack.adminDatabaseUrl, async (client) => {
      for (const endsAt = Date.now() + BOOKING_MS_MAX; Date.now() < endsAt && !signal.aborted;) {
        const { rows } = await client.query(INBOX_ALONE);
        if (rows.length > 0) return;
        await pause(LOOK_AGAIN_MS, signal);
      }
    });
  });
}

const BOOKING_MS_MAX = 30_000;
const INBOX_ALONE = `
  SELECT FROM remit.inbox i
   WHERE i.outcome = 'booked' AND NOT EXISTS (SELECT FROM remit.ledger_transactions t WHERE t.message_id = i.message_id)
   LIMIT 1`;

/** The same parameters, and nothing is done. */
function withoutBooking(sql: string): string {
  const isBooking = sql.includes("INSERT INTO remit.ledger_transactions");
  if (!isBooking) return sql;
  const parameters = new Set(sql.match(/\$\d+/g));
  return `SELECT ${[...parameters].map((parameter) => `${parameter}::text`).join(", ")}`;
}

/** A named statement is parsed once a session: the sessions are ended before and after. */
async function whileRewritten(
  { stack, traffic }: Stage,
  rewrite: (sql: string) => string,
  work: () => Promise<void>,
): Promise<void> {
  traffic.rewriteSql = rewrite;
  await endSessions(stack);
  try {
    await work();
  } finally {
    traffic.rewriteSql = (sql) => sql;
    await endSessions(stack);
  }
}
