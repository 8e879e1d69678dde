import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { changeAccountStatus } from "../../src/database/account-queries.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { transactionRows } from "../support/attacks.ts";
import { attempt as attemptOn } from "../support/attempt.ts";
import type { Statement } from "../support/attempt.ts";
import {
  aPayment,
  createdMessage,
  expectInvariants,
  fundedAccount,
  useDatabase,
} from "../support/database.ts";

/** What the database itself refuses the application's role, whatever our code does. */
const database = useDatabase();
let settled: string;
let pending: string;
let transactionId: string;

beforeAll(async () => {
  await fundedAccount(database(), "alice", { amountMinor: 100_000n });
  await fundedAccount(database(), "shop", { kind: "merchant" });
  await fundedAccount(database(), "bob", { amountMinor: 100_000n });
  await fundedAccount(database(), "thief");
  const first = aPayment();
  const second = aPayment();
  await recordPayment(database().app, first);
  await recordPayment(database().app, second);
  const applied = await applyLedgerEntries(
    database().app,
    await createdMessage(database().admin, first.paymentId),
  );
  settled = first.paymentId;
  pending = second.paymentId;
  transactionId = applied.transactionId ?? "";
});
afterEach(async () => {
  await expectInvariants(database());
});

async function attempt(...statements: Statement[]): Promise<string> {
  return await attemptOn(database(), ...statements);
}

const PERMISSION_DENIED = "42501";

/** The ledger transaction of a payment's own event, without entries. */
function bookingOf(payment: string, id: string): Statement {
  return [
    `INSERT INTO remit.ledger_transactions (id, message_id, payment_id, kind)
     SELECT $1, id, $2::text::uuid, 'payment' FROM remit.outbox WHERE aggregate_id = $2 AND type = 'payment.created'`,
    id,
    payment,
  ];
}

describe("balances", () => {
  test.each([
    ["UPDATE remit.accounts SET posted = posted + 1"],
    ["UPDATE remit.accounts SET held = 0"],
    ["UPDATE remit.accounts SET version = 0"],
    ["UPDATE remit.accounts SET overdraft = 1000000"],
    ["UPDATE remit.accounts SET kind = 'world'"],
    ["DELETE FROM remit.accounts"],
    [
      "INSERT INTO remit.accounts (id, kind, currency, posted) VALUES ('thief', 'customer', 'EUR', 1000)",
    ],
    ["ALTER TABLE remit.ledger_entries DISABLE TRIGGER ALL"],
    ["SET session_replication_role = replica"],
  ])("can't be written directly: %s", async (statement) => {
    expect(await attempt([statement])).toBe(PERMISSION_DENIED);
  });

  test("a customer account can't take the world's name", async () => {
    expect(
      await attempt([
        "INSERT INTO remit.accounts (id, kind, currency) VALUES ('world:GBP', 'customer', 'GBP')",
      ]),
    ).toBe("accounts_world_check");
  });
});

describe("a row that ON CONFLICT leaves out", () => {
  test("reserves nothing where it would have been a hold", async () => {
    const [before] = await database().admin("SELECT held FROM remit.accounts WHERE id = 'alice'");
    expect(
      await attempt([
        `INSERT INTO remit.holds (id, account_id, payment_id, amount)
         SELECT id, 'alice', payment_id, 4000 FROM remit.holds LIMIT 1
             ON CONFLICT DO NOTHING`,
      ]),
    ).toBe("nothing");
    const [after] = await database().admin("SELECT held FROM remit.accounts WHERE id = 'alice'");
    expect(after).toEqual(before);
  });

  test.each([
    [
      "remit.outbox (id, aggregate_type, aggregate_id, type, payload) SELECT id, aggregate_type, aggregate_id, type, payload FROM remit.outbox LIMIT 1",
      "outbox_heads_event_check",
    ],
    [
      "remit.outbox (id, aggregate_type, aggregate_id, type, payload) SELECT id, 'order', 'of-another', 'order.made', '{}' FROM remit.outbox LIMIT 1",
      "outbox_heads_event_check",
    ],
  ])("moves no version on: %s", async (rows, constraint) => {
    expect(await attempt([`INSERT INTO ${rows} ON CONFLICT DO NOTHING`])).toBe(constraint);
  });
});

describe("a decision in the inbox", () => {
  test.each([
    ["without an outcome", "NULL", "NULL", "NULL", "inbox_ledger_check"],
    ["as booked, which it isn't", "'booked'", "now()", "NULL", "inbox_booked_check"],
    ["as refused, and the payment waits", "'refused'", "now()", "'x'", "inbox_refused_check"],
  ])("can't be written beforehand: %s", async (_how, outcome, processedAt, error, constraint) => {
    expect(
      await attempt([
        `INSERT INTO remit.inbox (consumer, message_id, type, payload, outcome, processed_at, error)
           SELECT 'ledger', id, type, '{}', ${outcome}, ${processedAt}, ${error}
             FROM remit.outbox WHERE aggregate_id = $1 AND type = 'payment.created'`,
        pending,
      ]),
    ).toBe(constraint);
  });

  test("can't be turned into the other one", async () => {
    expect(
      await attempt([
        `UPDATE remit.inbox SET outcome = NULL, processed_at = NULL
          WHERE message_id = (SELECT message_id FROM remit.ledger_transactions WHERE payment_id = $1)`,
        settled,
      ]),
    ).toBe("inbox_ledger_check");
  });
});

describe("a hold", () => {
  test("lies on the account that gives, and on no stranger's", async () => {
    const paymentId = uuidv7();
    expect(
      await attempt(
        [
          `INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, version)
           VALUES ($1, 'default', 'born-dead', 'alice', 'shop', 9000, 'EUR', 'automatic', 'pending', 1)`,
          paymentId,
        ],
        [
          "INSERT INTO remit.holds (id, account_id, payment_id, amount) VALUES ($1, 'bob', $2, 9000)",
          uuidv7(),
          paymentId,
        ],
      ),
    ).toBe("holds_account_check");
  });
});

describe("a snapshot", () => {
  test.each(["REPEATABLE READ", "SERIALIZABLE"])(
    "is no ground to judge on: nothing of a payment is written under %s",
    async (level) => {
      const client = await database().app.pool.connect();
      const writes = [
        "UPDATE remit.payments SET updated_at = clock_timestamp()",
        "UPDATE remit.captures SET status = 'failed'",
        "UPDATE remit.refunds SET status = 'failed'",
        "UPDATE remit.holds SET remaining = 0",
        "INSERT INTO remit.ledger_transactions (id, message_id, payment_id, kind) SELECT gen_random_uuid(), gen_random_uuid(), id, 'payment' FROM remit.payments",
        "INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency) VALUES (gen_random_uuid(), gen_random_uuid(), 'shop', 'credit', 1, 'EUR')",
        "INSERT INTO remit.inbox (consumer, message_id, type, payload, processed_at, outcome) VALUES ('ledger', gen_random_uuid(), 'x', '{}', now(), 'refused')",
        "DELETE FROM remit.inbox",
        "UPDATE remit.idempotency_keys SET outcome = '{}'",
        "INSERT INTO remit.idempotency_keys (merchant, key, operation, fingerprint, request_id, outcome) VALUES ('default', 'k', 'pay', 'x', 'x', '{}')",
        "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES (gen_random_uuid(), 'payment', gen_random_uuid(), 'x', '{}')",
        "UPDATE remit.outbox SET claims = 0",
        "DELETE FROM remit.outbox",
      ];
      try {
        for (const write of writes) {
          await client.query(`BEGIN ISOLATION LEVEL ${level}`);
          const refusal = await client.query(write).catch((error: { code?: string }) => error.code);
          await client.query("ROLLBACK");
          expect([write, refusal]).toEqual([write, "25000"]);
        }
      } finally {
        client.release();
      }
    },
  );
});

describe("the ledger", () => {
  test.each([
    ["UPDATE remit.ledger_entries SET amount = 1"],
    ["DELETE FROM remit.ledger_entries"],
    ["TRUNCATE remit.ledger_entries"],
    ["UPDATE remit.ledger_transactions SET kind = 'refund'"],
    ["DELETE FROM remit.ledger_transactions"],
  ])("only grows: %s", async (statement) => {
    expect(await attempt([statement])).toBe(PERMISSION_DENIED);
  });

  test.each([
    ["UPDATE remit.ledger_entries SET amount = 1"],
    ["DELETE FROM remit.ledger_transactions"],
    ["TRUNCATE remit.ledger_entries"],
  ])("only grows for its owner too: %s", async (statement) => {
    await expect(
      database().admin(`SET ROLE remit_owner; ${statement}; RESET ROLE`),
    ).rejects.toMatchObject({
      code: PERMISSION_DENIED,
    });
    await database().admin("RESET ROLE");
  });

  test("a transaction that doesn't sum to zero can't be committed", async () => {
    const id = uuidv7();
    expect(
      await attempt(bookingOf(pending, id), [
        "INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency) VALUES ($1, $2, 'shop', 'credit', 1250, 'EUR')",
        uuidv7(),
        id,
      ]),
    ).toBe("ledger_transactions_zero_sum_check");
  });

  test("a transaction without entries can't be committed", async () => {
    expect(await attempt(bookingOf(pending, uuidv7()))).toBe("ledger_transactions_zero_sum_check");
  });

  test("entries can't be added to a transaction that is committed", async () => {
    expect(
      await attempt([
        "INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency) VALUES ($1, $2, 'shop', 'credit', 1, 'EUR')",
        uuidv7(),
        transactionId,
      ]),
    ).toBe("ledger_transactions_closed_check");
  });

  test("a second booking of one payment is refused under another message, too", async () => {
    expect(await attempt(...transactionRows({ payment: settled, message: uuidv7() }))).toBe(
      "ledger_transactions_one_payment_key",
    );
  });

  test("entries that come after every judge has looked are judged again", async () => {
    const [id, event] = [uuidv7(), uuidv7()];
    const booked: Statement[] = [
      bookingOf(pending, id),
      ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending],
      [
        `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
         VALUES (gen_random_uuid(), $1, 'alice', 'debit', 1250, 'EUR'), (gen_random_uuid(), $1, 'shop', 'credit', 1250, 'EUR')`,
        id,
      ],
      [
        "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'payment', $2, 'payment.settled', '{}')",
        event,
        pending,
      ],
      [
        "UPDATE remit.payments SET status = 'settled', captured_amount = amount, settled_at = now(), version = 2 WHERE id = $1",
        pending,
      ],
      ["SET CONSTRAINTS ALL IMMEDIATE"],
      ["SET CONSTRAINTS ALL DEFERRED"],
    ];
    const entries = (rows: string): Statement => [
      `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
       SELECT gen_random_uuid(), $1, account, direction, amount, 'EUR' FROM (VALUES ${rows}) e (account, direction, amount)`,
      id,
    ];
    expect(await attempt(...booked, entries("('shop', 'credit', 5)"))).toBe(
      "ledger_transactions_zero_sum_check",
    );
    expect(await attempt(...booked, entries("('alice', 'debit', 5), ('shop', 'credit', 5)"))).toBe(
      "payments_booked_check",
    );
  });

  test("an event of a payment that didn't change is refused", async () => {
    expect(
      await attempt([
        "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'payment', $2, 'payment.settled', '{}')",
        uuidv7(),
        pending,
      ]),
    ).toBe("payments_events_check");
  });

  test("nobody else's money can ride along in a booking", async () => {
    const [id, event] = [uuidv7(), uuidv7()];
    expect(
      await attempt(
        bookingOf(pending, id),
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending],
        [
          `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
           SELECT gen_random_uuid(), $1, account, direction, amount, 'EUR'
             FROM (VALUES ('alice', 'debit', 1250), ('shop', 'credit', 1250), ('alice', 'debit', 5), ('alice', 'credit', 5)) e (account, direction, amount)`,
          id,
        ],
        [
          "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'payment', $2, 'payment.settled', '{}')",
          event,
          pending,
        ],
        [
          "UPDATE remit.payments SET status = 'settled', captured_amount = amount, settled_at = now(), version = 2 WHERE id = $1",
          pending,
        ],
      ),
    ).toBe("payments_booked_check");
  });

  test.each([
    ["from its source to its destination", "alice", "shop", 1_250],
    ["from its source to a stranger", "alice", "thief", 1_250],
    ["from a stranger to its destination", "bob", "shop", 1_250],
    ["from a stranger to another", "bob", "thief", 50_000],
  ])("nothing is booked while its payment stays pending: %s", async (_name, from, to, amount) => {
    const id = uuidv7();
    expect(
      await attempt(bookingOf(pending, id), [
        `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
           VALUES ($1, $3, $4, 'debit', $6, 'EUR'), ($2, $3, $5, 'credit', $6, 'EUR')`,
        uuidv7(),
        uuidv7(),
        id,
        from,
        to,
        amount,
      ]),
    ).toBe("payments_booked_check");
  });
});

describe("payments", () => {
  test.each([
    ["UPDATE remit.payments SET amount = 1"],
    ["UPDATE remit.payments SET destination = 'alice'"],
    ["DELETE FROM remit.payments"],
    ["UPDATE remit.holds SET amount = 1"],
    ["DELETE FROM remit.holds"],
    ["DELETE FROM remit.idempotency_keys"],
    ["UPDATE remit.idempotency_keys SET fingerprint = 'x'"],
    ["UPDATE remit.outbox_heads SET last_version = 0"],
    ["UPDATE remit.outbox SET payload = '{}'"],
  ])("what was accepted can't be changed: %s", async (statement) => {
    expect(await attempt([statement])).toBe(PERMISSION_DENIED);
  });

  test.each([
    ["payment", "payment.created", (id: string) => id.toUpperCase(), "{}"],
    ["payment", "payment.captured", (id: string) => id, '{"data": {"captureId": "xyz"}}'],
    ["payment", "payment.captured", (id: string) => id, "{}"],
    ["payment", "payment.settled", () => "nonsense", "{}"],
    ["refund", "refund.created", () => "nonsense", "{}"],
  ])("an event of a %s that names none (%s) is refused", async (of, type, idOf, payload) => {
    expect(
      await attempt([
        "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, $2, $3, $4, $5)",
        uuidv7(),
        of,
        idOf(pending),
        type,
        payload,
      ]),
    ).toBe("outbox_aggregate_id_check");
  });

  test("a terminal status never changes", async () => {
    expect(
      await attempt([
        "UPDATE remit.payments SET status = 'failed', settled_at = NULL WHERE id = $1",
        settled,
      ]),
    ).toBe("payments_transition_check");
  });

  test("settled without a ledger transaction can't be committed", async () => {
    expect(
      await attempt(
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending],
        [
          "UPDATE remit.payments SET status = 'settled', captured_amount = amount, settled_at = now(), version = 2 WHERE id = $1",
          pending,
        ],
      ),
    ).toBe("payments_booked_check");
  });

  test("the account where a currency's money enters can't be closed", async () => {
    expect(
      await attempt(["UPDATE remit.accounts SET status = 'closed' WHERE id = 'world:EUR'"]),
    ).toMatch(/^accounts_(world_open|closed)_check$/);
    await expect(
      changeAccountStatus(database().app, { accountId: "world:EUR", status: "closed" }),
    ).rejects.toMatchObject({ code: "account_invalid" });
  });

  test("a change whose version stays is one without its event", async () => {
    expect(
      await attempt(
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending],
        ["UPDATE remit.payments SET status = 'cancelled' WHERE id = $1", pending],
      ),
    ).toBe("payments_events_check");
  });

  test("what the ledger has still to book can't be purged, published or not", async () => {
    expect(
      await attempt(
        [
          "UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'forged', published_at = now() WHERE aggregate_id = $1",
          pending,
        ],
        ["DELETE FROM remit.outbox WHERE aggregate_id = $1", pending],
      ),
    ).toBe("outbox_purge_check");
  });

  test("a hold can't be let go while its payment is pending, and never grows", async () => {
    expect(
      await attempt(["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending]),
    ).toBe("payments_hold_check");
    expect(
      await attempt(["UPDATE remit.holds SET remaining = 1250 WHERE payment_id = $1", settled]),
    ).toBe("holds_shrink_check");
  });

  test("a hold can't be let go behind a savepoint that is rolled back, which forges the order of commands", async () => {
    expect(
      await attempt(
        ["UPDATE remit.holds SET remaining = 1 WHERE payment_id = $1", pending],
        ["SAVEPOINT one"],
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending],
        ["ROLLBACK TO one"],
        ["SAVEPOINT two"],
        ["UPDATE remit.payments SET updated_at = updated_at WHERE id = $1", pending],
        ["ROLLBACK TO two"],
      ),
    ).toBe("payments_hold_check");
  });

  test("a change of state without its event can't be committed", async () => {
    expect(
      await attempt(
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", pending],
        [
          "UPDATE remit.payments SET status = 'cancelled', version = version + 1 WHERE id = $1",
          pending,
        ],
      ),
    ).toBe("payments_events_check");
  });

  test("a payment without a hold can't be committed", async () => {
    const id = uuidv7();
    expect(
      await attempt(
        [
          `INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, version)
           VALUES ($1, 'default', 'no-hold', 'alice', 'shop', 5, 'EUR', 'automatic', 'pending', 1)`,
          id,
        ],
        [
          "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'payment', $2, 'payment.created', '{}')",
          uuidv7(),
          id,
        ],
      ),
    ).toBe("payments_hold_check");
  });

  test("a payment in another currency than its accounts' can't be written", async () => {
    expect(
      await attempt([
        `INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, version)
         VALUES ($1, 'default', 'usd', 'alice', 'shop', 5, 'USD', 'automatic', 'pending', 1)`,
        uuidv7(),
      ]),
    ).toBe("payments_source_fkey");
  });

  test("a decision about a key stands", async () => {
    expect(
      await attempt([
        `UPDATE remit.idempotency_keys SET outcome = '{"decision": "refused", "code": "x", "message": "x"}' WHERE outcome ->> 'paymentId' = $1`,
        settled,
      ]),
    ).toBe("idempotency_keys_decided_check");
  });
});

describe("the outbox", () => {
  test("nothing is published without the broker's receipt, and nothing unpublished is purged", async () => {
    expect(
      await attempt(["UPDATE remit.outbox SET status = 'PUBLISHED' WHERE status = 'PENDING'"]),
    ).toBe("outbox_receipt_check");
    expect(await attempt(["DELETE FROM remit.outbox WHERE status = 'PENDING'"])).toBe(
      "outbox_purge_check",
    );
    expect(await attempt(["TRUNCATE remit.outbox"])).toBe(PERMISSION_DENIED);
  });

  test("the shard is the database's choice, and a version out of turn is refused", async () => {
    expect(
      await attempt([
        "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload, shard) VALUES ($1, 'x', 'y', 't', '{}', 1)",
        uuidv7(),
      ]),
    ).toBe(PERMISSION_DENIED);
    expect(
      await attempt([
        "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload) VALUES ($1, 'x', 'y', 2, 't', '{}')",
        uuidv7(),
      ]),
    ).toBe("40001");
  });
});
