import { withClient } from "../src/local/postgres.ts";
import {
  inboxWithoutBooking,
  markWithoutToken,
  onlyNotify,
  setPollInterval,
} from "./broken-rules.ts";
import { pause } from "./pause.ts";
import type { Arena } from "./run.ts";
import { killScenarios } from "./scenarios.ts";
import type { Scenario, Stage } from "./scenarios.ts";

/** A fault on purpose: a rule of Remit's is broken in the traffic or by the administrator, and the checks must find it. */
export interface Plant {
  readonly scenario: Scenario;
  /** What one of the problems must say. */
  readonly expects: string;
  readonly beforeChecks?: (arena: Arena) => Promise<void>;
  /** Undoes what would go on in later runs. */
  readonly afterChecks?: (arena: Arena) => Promise<void>;
}

/**
 * In a planted run the supervisor's own starts of bookings are refused: it looks for events that were published and never
 * came in, and would have mended within two minutes what the plant broke. What is lost stays open, and later runs wait for
 * it in vain: those plants come last.
 */
export function plants(): Plant[] {
  return [
    {
      scenario: planted(
        "entry-removed",
        "an entry of a booked payment is gone",
        async ({ signal }) => await pause(PLANTED_MS, signal),
      ),
      expects: "entries are",
      beforeChecks: async (arena) => await plantSql(arena, "entry-removed", ENTRY_REMOVED),
    },
    {
      scenario: planted(
        "booked-twice",
        "the guards of the ledger are dropped, and a payment is booked twice",
        async ({ signal }) => await pause(PLANTED_MS, signal),
      ),
      expects: "booked 2 times",
      beforeChecks: async (arena) => await plantSql(arena, "booked-twice", BOOKED_TWICE),
    },
    {
      scenario: planted(
        "mark-without-token",
        "a relay that was frozen beyond its lease marks rows that others have published",
        markWithoutToken,
      ),
      expects: "published before its predecessor",
    },
    {
      scenario: planted(
        "notify-only",
        "the relay doesn't poll, and notifications are lost",
        onlyNotify,
      ),
      expects: "events aren't published",
      afterChecks: async ({ fleet }) => await setPollInterval(fleet, null),
    },
    {
      scenario: planted(
        "inbox-outside-transaction",
        "the inbox's guard is dropped: the ledger keeps that it has a message, and its booking isn't committed",
        inboxWithoutBooking,
      ),
      expects: "pending instead of settled",
    },
    {
      scenario: planted(
        "swallowed-half",
        "the relay marks a whole batch of which SNS got half",
        async ({ traffic, fault, signal }) => {
          traffic.brokerFault = ({ action }) =>
            action === "PublishBatch" ? { kind: "swallowHalf" } : null;
          fault();
          const before = traffic.swallowed;
          for (
            const endsAt = Date.now() + SWALLOW_MS_MAX;
            Date.now() < endsAt && !signal.aborted;
          ) {
            await pause(PLANTED_MS, signal);
            if (traffic.swallowed > before) break;
          }
          traffic.brokerFault = () => null;
        },
      ),
      expects: "pending instead of settled",
    },
    {
      scenario: planted(
        "delete-before-start",
        "the intake deletes first and starts afterwards, and is killed in between",
        async (stage) => {
          stage.traffic.brokerFault = ({ action }) =>
            action === "ReceiveMessage" ? { kind: "deleteFirst" } : null;
          const kill = killScenarios().find(({ name }) => name === "worker:before-start");
          await kill?.play({ ...stage, runs: 2 });
          stage.traffic.brokerFault = () => null;
        },
      ),
      expects: "pending instead of settled",
    },
    {
      scenario: planted(
        "answer-without-commit",
        "a transaction is rolled back where it says that it was committed",
        async ({ traffic, fault, signal }) => {
          traffic.rewriteSql = (sql) => (sql === "COMMIT" ? "ROLLBACK" : sql);
          fault();
          await pause(PLANTED_MS, signal);
          traffic.rewriteSql = (sql) => sql;
        },
      ),
      expects: "nothing is recorded",
    },
  ];
}

const PLANTED_MS = 2_500;
const SWALLOW_MS_MAX = 30_000;
const UNAVAILABLE = 14;

function planted(name: string, about: string, play: (stage: Stage) => Promise<void>): Scenario {
  return {
    name: `plant:${name}`,
    about,
    play: async (stage) => {
      stage.traffic.temporalFault = ({ workerName, method, message }) =>
        workerName.startsWith("payments") &&
        method === "StartWorkflowExecution" &&
        message.includes("ledger:")
          ? { kind: "refuse", grpcStatus: UNAVAILABLE }
          : null;
      await play(stage);
    },
  };
}

/** As the superuser with all triggers off, on one booked payment of this scenario. */
async function plantSql(
  { stack, oracle }: Arena,
  name: string,
  statements: readonly string[],
): Promise<void> {
  const keys = oracle
    .of(`plant:${name}`)
    .flatMap(({ kind, isManual, key }) => (kind === "pay" && !isManual ? [key] : []));
  await withClient(stack.adminDatabaseUrl, async (client) => {
    await client.query("SET session_replication_role = replica");
    const { rows } = await client.query<{ id: string }>(
      `SELECT t.id FROM remit.ledger_transactions t JOIN remit.payments p ON p.id = t.payment_id
        WHERE t.kind = 'payment' AND p.idempotency_key = ANY ($1) LIMIT 1`,
      [keys],
    );
    for (const statement of statements) {
      await client.query(statement, statement.includes("$1") ? [rows[0]?.id] : []);
    }
  });
}

const ENTRY_REMOVED = [
  "DELETE FROM remit.ledger_entries WHERE transaction_id = $1 AND direction = 'credit'",
];

const BOOKED_TWICE = [
  "DROP INDEX remit.ledger_transactions_one_payment_key",
  `WITH again AS (
     INSERT INTO remit.ledger_transactions (id, message_id, payment_id, kind)
     SELECT gen_random_uuid(), gen_random_uuid(), payment_id, kind FROM remit.ledger_transactions WHERE id = $1
     RETURNING id)
   INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency, balance_after, account_version)
   SELECT gen_random_uuid(), again.id, e.account_id, e.direction, e.amount, e.currency, e.balance_after, e.account_version + 1000000
     FROM remit.ledger_entries e, again
    WHERE e.transaction_id = $1`,
];
