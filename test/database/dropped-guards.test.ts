import { v7 as uuidv7 } from "uuid";
import {
  captureRows,
  entryRow,
  eventRow,
  keyRow,
  paymentRows,
  refundRows,
  settledCapture,
  transactionRows,
} from "../support/attacks.ts";
import type { Statement } from "../support/attempt.ts";
import { expectInvariants, fundedAccount, useDatabase } from "../support/database.ts";
import { attackWithout, loosen } from "../support/dropped.ts";
import { certainly, openScene, pay, setStatus } from "../support/money-operations.ts";
import { openParts } from "../support/part-scene.ts";
import type { Parts } from "../support/part-scene.ts";

/**
 * Planted faults: the guards of money are taken away one by one, in the order in which they stop an attack, until it goes
 * through; where an invariant stands behind them, verify then finds it broken. All in transactions that are rolled back.
 */
const database = useDatabase();
/** `late` was accepted for a destination that has closed since. */
let ids: Parts & { rich: string; shop: string; pending: string; late: string; gone: string };

beforeAll(async () => {
  const { payer: rich, seller: shop, order } = await openScene(database());
  const input = order({ amountMinor: "1000" });
  await certainly("recorded", pay(input)(database().app));
  const gone = await fundedAccount(database(), "gone");
  const late = order({ amountMinor: "1", destination: gone });
  await certainly("recorded", pay(late)(database().app));
  await certainly("closed", setStatus(gone, "closed")(database().app));
  const payments = { pending: input.paymentId, late: late.paymentId };
  ids = { ...(await openParts(database())), ...payments, rich, shop, gone };
});
afterEach(async () => {
  await expectInvariants(database());
});

type Guard = [name: string, takeAway: string];

interface Case {
  /** In the order in which they stop the attack. */
  readonly guards: readonly Guard[];
  readonly attack: () => Statement[];
  /** The invariant that then is broken; null where the guards are all there is. */
  readonly invariant: number | null;
}

const dropTrigger = (name: string, table: string): string =>
  `DROP TRIGGER ${name} ON remit.${table}`;
const dropConstraint = (name: string, table: string): Guard => [
  name,
  `ALTER TABLE remit.${table} DROP CONSTRAINT ${name}`,
];
const dropIndex = (name: string): Guard => [name, `DROP INDEX remit.${name}`];

const ZERO_SUM: Guard = [
  "ledger_transactions_zero_sum_check",
  loosen("transaction_is_balanced", "entries < 2 OR unbalanced > 0"),
];
const CAPTURE_BOOKED: Guard = [
  "captures_booked_check",
  loosen("payment_is_whole", "p.capture = 'manual'"),
];
const HOLD: Guard = ["payments_hold_check", loosen("payment_is_whole", "held <> open")];
const BOOKED: Guard = [
  "payments_booked_check",
  loosen(
    "payment_is_whole",
    "debited <> settled OR credited <> settled OR entries <> 2 * transactions OR sides <> entries OR (p.status = 'settled' AND settled = 0)",
  ),
];
const CAPTURED: Guard = [
  "payments_captured_check",
  [
    "p.captured_amount <> settled + pending",
    "p.refunded_amount > settled",
    "(p.status = 'captured' AND pending = 0)",
  ]
    .map((condition) => loosen("payment_is_whole", condition))
    .join(";"),
];
const REFUND_BOOKED: Guard = [
  "refunds_booked_check",
  loosen(
    "refund_is_whole",
    "debited <> settled OR credited <> settled OR entries <> 2 * transactions OR sides <> entries",
  ),
];

const EVENT: Guard = [
  "ledger_transactions_event_check",
  dropTrigger("ledger_transactions_with_event", "ledger_transactions"),
];

const OWN_CAPTURE: Guard = [
  "ledger_transactions_own_capture_check",
  dropTrigger("ledger_transactions_with_event", "ledger_transactions"),
];

/** A capture booked for a payment that isn't its own. */
function exchanged(payment: string, part: string): Statement[] {
  const message = uuidv7();
  return [
    ["UPDATE remit.payments SET version = version + 1 WHERE id = $1", payment],
    [
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
       VALUES ($1, 'payment', $2, 'payment.captured', $3)`,
      message,
      payment,
      JSON.stringify({ data: { captureId: part } }),
    ],
    ...transactionRows(
      { payment, kind: "capture", part, message },
      [ids.payer, "debit", 1_000],
      [ids.seller, "credit", 1_000],
    ),
  ];
}

const anOrder = (key: string, amount: number): Statement[] =>
  paymentRows({ key, from: ids.rich, to: ids.shop, amount });

const CASES: Record<string, Case> = {
  "a ledger transaction without entries": {
    guards: [ZERO_SUM],
    attack: () => transactionRows({ payment: ids.pending }),
    invariant: 1,
  },
  "money out of nothing": {
    guards: [ZERO_SUM, BOOKED],
    attack: () => transactionRows({ payment: ids.pending }, [ids.shop, "credit", 1_000]),
    invariant: 1,
  },
  "money out of an entry that ON CONFLICT leaves out": {
    guards: [["accounts_entries_check", dropTrigger("accounts_follow", "accounts")]],
    attack: () => {
      const booking = transactionRows(
        { payment: ids.pending },
        [ids.rich, "debit", 1_000],
        [ids.shop, "credit", 1_000],
      );
      const transactionId = booking[0]?.[1];
      return [
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", ids.pending],
        ...booking,
        [
          `INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency)
           SELECT id, $1, $2, 'credit', 1000000, 'EUR' FROM remit.ledger_entries LIMIT 1
               ON CONFLICT DO NOTHING`,
          transactionId,
          ids.shop,
        ],
        eventRow("payment", ids.pending, "payment.settled"),
        [
          "UPDATE remit.payments SET status = 'settled', captured_amount = amount, version = 2, settled_at = now() WHERE id = $1",
          ids.pending,
        ],
      ];
    },
    invariant: 2,
  },
  "an event that ON CONFLICT leaves out": {
    guards: [["outbox_heads_event_check", dropTrigger("outbox_heads_follow", "outbox_heads")]],
    attack: () => [
      [
        `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload)
         SELECT id, 'payment', $1, 'payment.created', '{}' FROM remit.outbox LIMIT 1
             ON CONFLICT DO NOTHING`,
        ids.pending,
      ],
    ],
    invariant: 6,
  },
  "entries added to a transaction of long ago": {
    guards: [
      [
        "ledger_transactions_closed_check",
        loosen(
          "ledger_entries_post",
          "NOT EXISTS (SELECT FROM ledger_transactions WHERE id = new.transaction_id AND xact = pg_current_xact_id())",
        ),
      ],
      BOOKED,
      CAPTURE_BOOKED,
    ],
    attack: () => [
      entryRow(ids.capture.transaction, ids.payer, "debit", 5),
      entryRow(ids.capture.transaction, ids.seller, "credit", 5),
    ],
    invariant: 9,
  },
  "a payment booked again under another message": {
    guards: [dropIndex("ledger_transactions_one_payment_key"), BOOKED, EVENT],
    attack: () =>
      transactionRows(
        { payment: ids.refund.payment, message: uuidv7() },
        [ids.payer, "debit", 1_000],
        [ids.seller, "credit", 1_000],
      ),
    invariant: 9,
  },
  "a capture booked again under another message": {
    guards: [
      dropConstraint("ledger_transactions_capture_key", "ledger_transactions"),
      BOOKED,
      EVENT,
    ],
    attack: () =>
      transactionRows(
        {
          payment: ids.capture.payment,
          kind: "capture",
          part: ids.capture.part,
          message: uuidv7(),
        },
        [ids.payer, "debit", 1_000],
        [ids.seller, "credit", 1_000],
      ),
    invariant: 9,
  },
  "captures booked for each other's payment, with events that name them so": {
    guards: [CAPTURE_BOOKED, OWN_CAPTURE],
    attack: () => {
      const [here, there] = [ids.openCapture, ids.otherCapture];
      return [
        ...settledCapture(here, 1_000),
        ...settledCapture(there, 1_000),
        ...exchanged(here.payment, there.part),
        ...exchanged(there.payment, here.part),
      ];
    },
    invariant: 9,
  },
  "a refund booked again under another message": {
    guards: [
      dropConstraint("ledger_transactions_refund_key", "ledger_transactions"),
      REFUND_BOOKED,
      EVENT,
    ],
    attack: () =>
      transactionRows(
        { payment: ids.refund.payment, kind: "refund", part: ids.refund.part, message: uuidv7() },
        [ids.seller, "debit", 100],
        [ids.payer, "credit", 100],
      ),
    invariant: 9,
  },
  "a payment of more than there is": {
    guards: [dropConstraint("accounts_available_check", "accounts")],
    attack: () => anOrder("beyond", 9_001),
    invariant: 5,
  },
  "a second payment for a key": {
    guards: [
      dropConstraint("payments_merchant_key_key", "payments"),
      ["payments_with_key_check", dropTrigger("payments_with_key", "payments")],
    ],
    attack: () => [...anOrder("twice", 1), ...anOrder("twice", 1).slice(1)],
    invariant: 6,
  },
  "a second hold for one payment": {
    guards: [dropIndex("holds_payment_key"), HOLD],
    attack: () => [
      [
        "INSERT INTO remit.holds (id, account_id, payment_id, amount) VALUES ($1, $2, $3, 1000)",
        uuidv7(),
        ids.rich,
        ids.pending,
      ],
    ],
    invariant: null,
  },
  "a hold that comes back": {
    guards: [["holds_shrink_check", loosen("holds_derive", "new.remaining > old.remaining")], HOLD],
    attack: () => [
      [
        "UPDATE remit.holds SET remaining = 5 WHERE payment_id = $1 AND refund_id IS NULL",
        ids.refund.payment,
      ],
    ],
    invariant: 3,
  },
  "a voided authorization that is said to have expired": {
    guards: [
      ["payments_transition_check", dropTrigger("payments_transition", "payments")],
      ["payments_events_check", dropTrigger("payments_version", "payments")],
    ],
    attack: () => [["UPDATE remit.payments SET status = 'expired' WHERE id = $1", ids.voided]],
    invariant: 7,
  },
  "a capture of a payment that is booked as a whole": {
    guards: [["captures_manual_check", dropTrigger("captures_manual", "captures")]],
    attack: () => captureRows({ key: "k", payment: ids.refund.payment, amount: 1 }),
    invariant: 4,
  },
  "a capture beside the open one": {
    guards: [dropIndex("captures_one_open_key"), CAPTURED],
    attack: () => captureRows({ key: "k", payment: ids.openCapture.payment, amount: 1 }),
    invariant: 4,
  },
  "a refund of more than was captured": {
    guards: [dropConstraint("payments_amounts_check", "payments"), CAPTURED],
    attack: () => refundRows({ payment: ids.refund.payment, account: ids.seller, amount: 901 }),
    invariant: 4,
  },
  "a refund of what is not booked yet": {
    guards: [CAPTURED],
    attack: () =>
      refundRows({ payment: ids.finalCapture.payment, account: ids.seller, amount: 1_000 }),
    invariant: null,
  },
  "a refund in another currency": {
    guards: [
      ["refunds_payment_currency_check", loosen("refund_is_whole", "r.currency <> p.currency")],
    ],
    attack: () =>
      refundRows({ payment: ids.refund.payment, account: ids.seller, amount: 1 }).map(
        ([text, ...values]) => [text.replace("'EUR'", "'USD'"), ...values],
      ),
    invariant: 4,
  },
  "a settled refund called failed": {
    guards: [
      ["refunds_transition_check", dropTrigger("refunds_transition", "refunds")],
      REFUND_BOOKED,
    ],
    attack: () => [
      [
        "UPDATE remit.refunds SET status = 'failed', failure_code = 'x', settled_at = NULL WHERE id = $1",
        ids.refund.part,
      ],
    ],
    invariant: 4,
  },
  "an account closed over its money": {
    guards: [dropConstraint("accounts_closed_check", "accounts")],
    attack: () => [["UPDATE remit.accounts SET status = 'closed' WHERE id = $1", ids.rich]],
    invariant: null,
  },
  "a booking to an account that has closed": {
    guards: [
      [
        "ledger_entries_account_open_check",
        loosen("ledger_entries_post", "status <> 'closed'", "true"),
      ],
      dropConstraint("accounts_closed_check", "accounts"),
    ],
    attack: () => [
      ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", ids.late],
      ...transactionRows({ payment: ids.late }, [ids.rich, "debit", 1], [ids.gone, "credit", 1]),
      eventRow("payment", ids.late, "payment.settled"),
      [
        "UPDATE remit.payments SET status = 'settled', captured_amount = 1, version = 2, settled_at = now() WHERE id = $1",
        ids.late,
      ],
    ],
    invariant: null,
  },
  "an acceptance called a refusal": {
    guards: [
      [
        "idempotency_keys_decided_check",
        dropTrigger("idempotency_keys_decided", "idempotency_keys"),
      ],
    ],
    attack: () => [
      [
        `UPDATE remit.idempotency_keys SET outcome = '{"decision": "refused", "code": "x", "message": "x"}' WHERE outcome ->> 'paymentId' = $1 AND operation = 'pay'`,
        ids.pending,
      ],
    ],
    invariant: 10,
  },
  "a refund under the key of another": {
    guards: [["refunds_with_key_check", dropTrigger("refunds_with_key", "refunds")]],
    attack: () => {
      const refund = (): Statement[] =>
        refundRows({ payment: ids.refund.payment, account: ids.seller, amount: 1 });
      return [...refund(), ...refund().slice(1)];
    },
    invariant: 10,
  },
  "a payment under a refund's key": {
    guards: [["payments_with_key_check", dropTrigger("payments_with_key", "payments")]],
    attack: () => [
      ...refundRows({ payment: ids.refund.payment, account: ids.seller, amount: 1 }),
      ...anOrder("attack", 1).slice(1),
    ],
    invariant: 10,
  },
  "an acceptance of what was never made": {
    guards: [
      [
        "idempotency_keys_kept_check",
        dropTrigger("idempotency_keys_kept_word", "idempotency_keys"),
      ],
    ],
    attack: () => [keyRow("said", { operation: "pay", payment: uuidv7() })],
    invariant: 10,
  },
  "an event of a payment that isn't there": {
    guards: [["payments_events_check", dropTrigger("outbox_counted", "outbox")]],
    attack: () => [eventRow("payment", uuidv7(), "payment.created")],
    invariant: null,
  },
  "an event thrown away before it was published": {
    guards: [["outbox_purge_check", dropTrigger("outbox_purge", "outbox")]],
    attack: () => [["DELETE FROM remit.outbox WHERE aggregate_id = $1", ids.pending]],
    invariant: 9,
  },
};

test.each(Object.entries(CASES))("%s", async (_name, { guards, attack, invariant }) => {
  for (const [position, [name]] of guards.entries()) {
    const takeAway = guards.slice(0, position).map(([, sql]) => sql);
    const stopped = await attackWithout(database(), { takeAway, statements: attack() });
    expect(stopped.stoppedBy).toBe(name);
  }
  const takeAway = guards.map(([, sql]) => sql);
  const { stoppedBy, broken } = await attackWithout(database(), { takeAway, statements: attack() });
  expect(stoppedBy).toBe("nothing");
  expect(broken).toEqual(expect.arrayContaining(invariant === null ? [] : [invariant]));
});
