import { setTimeout as delay } from "node:timers/promises";
import { DatabaseError } from "../../src/database/database-error.ts";
import type { Database } from "../../src/database/database.ts";
import { DomainError } from "../../src/domain/errors.ts";
import type { TestDatabase } from "./database.ts";
import { aroundStatements } from "./statements.ts";

/** Something that decides, in a word: "recorded", "booked", or why not. */
export type Operation = (database: Database) => Promise<string>;

/** How two operations ended of which one was stopped right after a statement while the other ran. */
export interface Round {
  readonly stoppedAfter: string;
  /** Whether the rival had to wait for the stopped one. */
  readonly rivalWaited: boolean;
  readonly stopped: string;
  readonly rival: string;
  /** SQLSTATE or constraint of each statement that failed, retried or not. */
  readonly failures: readonly string[];
}

/** The rival may be blocked for less than the database's lock_timeout of 2 s. */
const LOOK_EVERY_MS = 2;
const LOOKS_MAX = 750;

/**
 * Stops one operation right after its statement at `position`, lets the rival run until it has ended or waits for a lock,
 * and lets the stopped one go on.
 */
export async function playRound(
  { app, admin }: Pick<TestDatabase, "app" | "admin">,
  {
    stopped,
    rival,
    position,
    rivalOn = app,
    stoppedOn = app,
  }: {
    stopped: Operation;
    rival: Operation;
    position: number;
    stoppedOn?: Database;
    rivalOn?: Database;
  },
): Promise<Round> {
  const failures: string[] = [];
  const barrier = stopAfter(position);
  const watch = (database: Database): Database => watchFailures(database, failures);
  const stoppedWord = wordOf(stopped, barrier.around(watch(stoppedOn)));
  const stoppedAfter = await Promise.race([barrier.reached, failed(stoppedWord)]);
  let hasEnded = false;
  const rivalWord = wordOf(rival, watch(rivalOn)).finally(() => (hasEnded = true));
  let rivalWaited = false;
  try {
    for (let look = 0; !hasEnded && !rivalWaited; look += 1) {
      if (look > LOOKS_MAX)
        throw new Error(`after ${stoppedAfter} the rival neither ends nor waits`);
      rivalWaited = (await waitingSessions(admin)) > 0;
      await delay(LOOK_EVERY_MS);
    }
  } finally {
    barrier.release();
  }
  return {
    stoppedAfter,
    rivalWaited,
    stopped: await stoppedWord,
    rival: await rivalWord,
    failures,
  };
}

/** What an operation decided, or what it threw at its caller. */
async function wordOf(operation: Operation, database: Database): Promise<string> {
  try {
    return await operation(database);
  } catch (error) {
    if (error instanceof DomainError) return error.code;
    return `thrown: ${failureOf(error)}`;
  }
}

/** Of our error, or of the driver's. */
function failureOf(error: unknown): string {
  if (error instanceof DatabaseError) return error.constraint ?? error.sqlState;
  const { constraint, code } = error as { constraint?: string; code?: string };
  return constraint ?? code ?? String(error);
}

function stopAfter(position: number): {
  around: (database: Database) => Database;
  reached: Promise<string>;
  release: () => void;
} {
  const reached = Promise.withResolvers<string>();
  const released = Promise.withResolvers<void>();
  let sent = 0;
  return {
    reached: reached.promise,
    release: released.resolve,
    around: (database) =>
      aroundStatements(database, async ({ name }, send) => {
        const at = sent;
        sent += 1;
        const result = await send();
        if (at === position) {
          reached.resolve(name);
          await released.promise;
        }
        return result;
      }),
  };
}

/** The same database; what fails in it is noted by SQLSTATE or constraint. */
export function watchFailures(database: Database, failures: string[]): Database {
  return aroundStatements(database, async (_statement, send) => {
    try {
      return await send();
    } catch (error) {
      failures.push(failureOf(error));
      throw error;
    }
  });
}

async function failed(word: Promise<string>): Promise<never> {
  throw new Error(`ended (${await word}) before it could be stopped`);
}

/**
 * How many sessions of this database wait for a lock that another one holds. A session that has just been woken still shows
 * the wait; nobody blocks it any more.
 */
export async function waitingSessions(admin: TestDatabase["admin"]): Promise<number> {
  const rows = await admin(
    `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
     AND cardinality(pg_blocking_pids(pid)) > 0`,
  );
  return rows.length;
}
