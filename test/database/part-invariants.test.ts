import { verify } from "../../src/database/invariants.ts";
import { useDatabase } from "../support/database.ts";
import { openParts } from "../support/part-scene.ts";
import type { Part, Parts } from "../support/part-scene.ts";
import { verifyPlanted } from "../support/planted.ts";

/** Breaks of captures and refunds, planted as the superuser with all triggers off: verify must name each by itself. */
const database = useDatabase();
let ids: Parts;

beforeAll(async () => {
  ids = await openParts(database());
});

const PENDING = "status = 'pending', settled_at = NULL, failure_code = NULL";
const SETTLED = "status = 'settled', settled_at = now(), failure_code = NULL";
const FAILED = "status = 'failed', settled_at = NULL, failure_code = 'x'";
const PUBLISHED =
  "status = 'PUBLISHED', broker_message_id = 'x', published_at = now() - interval '1 hour'";
const OPENED = "status = 'open', closed_at = NULL";

/** Takes a ledger transaction away; of an account only the last entry can go without invariant 2 seeing it. */
const unbook = ({ transaction }: Part): string =>
  `DELETE FROM remit.ledger_entries WHERE transaction_id = '${transaction}';
   DELETE FROM remit.ledger_transactions WHERE id = '${transaction}'`;

/** Books a part beside the code: one more ledger transaction with both entries. */
const book = ({ payment, part, message }: Part, column: string, amount: number): string => `
  INSERT INTO remit.ledger_transactions (id, message_id, payment_id, ${column}, kind)
  VALUES (gen_random_uuid(), '${message}', '${payment}', '${part}', '${column.replace("_id", "")}');
  INSERT INTO remit.ledger_entries (id, transaction_id, account_id, direction, amount, currency, balance_after, account_version)
  SELECT gen_random_uuid(), t.id, side.account, side.direction, ${amount}, 'EUR', 0, 900
    FROM remit.ledger_transactions t
   CROSS JOIN (VALUES ('${ids.payer}', 'debit'), ('${ids.seller}', 'credit')) side (account, direction)
   WHERE t.${column} = '${part}'`;

type Break = [number: number, what: string, sql: () => string, named: () => string];

const HOLDS: Break[] = [
  [
    3,
    "a refund's hold that has become smaller",
    () =>
      `UPDATE remit.holds SET remaining = remaining - 1 WHERE refund_id = '${ids.openRefund.part}';
       UPDATE remit.accounts SET held = held - 1 WHERE id = '${ids.seller}'`,
    () => ids.openRefund.part,
  ],
  [
    3,
    "a refund on its way without its hold",
    () =>
      `DELETE FROM remit.holds WHERE refund_id = '${ids.openRefund.part}';
       UPDATE remit.accounts SET held = held - 100 WHERE id = '${ids.seller}'`,
    () => ids.openRefund.part,
  ],
  [
    3,
    "a refund's hold on somebody else's account",
    () =>
      `UPDATE remit.holds SET account_id = '${ids.payer}' WHERE refund_id = '${ids.openRefund.part}';
       UPDATE remit.accounts SET held = held + CASE id WHEN '${ids.payer}' THEN 100 ELSE -100 END WHERE id IN ('${ids.payer}', '${ids.seller}')`,
    () => ids.openRefund.part,
  ],
  ...(["refund", "failedRefund"] as const).map((ended): Break => [
    3,
    `a hold left open (${ended})`,
    () =>
      `UPDATE remit.holds SET remaining = 7, ${OPENED} WHERE refund_id = '${ids[ended].part}';
       UPDATE remit.accounts SET held = held + 7 WHERE id = '${ids.seller}'`,
    () => `is open for refund ${ids[ended].part}`,
  ]),
  [
    3,
    "a refund's hold that the account doesn't count",
    () => `UPDATE remit.accounts SET held = held - 100 WHERE id = '${ids.seller}'`,
    () => ids.seller,
  ],
  [
    3,
    "a hold left open by a void",
    () =>
      `UPDATE remit.holds SET remaining = 7, ${OPENED} WHERE payment_id = '${ids.voided}';
       UPDATE remit.accounts SET held = held + 7 WHERE id = '${ids.payer}'`,
    () => ids.voided,
  ],
  ...(["capture", "finalCapture"] as const).map((open): Break => [
    3,
    `an authorization without its hold (${open})`,
    () =>
      `UPDATE remit.accounts SET held = held - (SELECT remaining FROM remit.holds WHERE payment_id = '${ids[open].payment}') WHERE id = '${ids.payer}';
       UPDATE remit.holds SET remaining = 0, status = 'closed', closed_at = now() WHERE payment_id = '${ids[open].payment}'`,
    () => ids[open].payment,
  ]),
];

const SUMS: Break[] = [
  ...(["capture", "openCapture", "finalCapture", "failedCapture"] as const).map((of): Break => [
    4,
    `captured_amount beyond the captures (${of})`,
    () =>
      `ALTER TABLE remit.payments DROP CONSTRAINT payments_amounts_check;
       UPDATE remit.payments SET captured_amount = captured_amount + 1 WHERE id = '${ids[of].payment}'`,
    () => ids[of].payment,
  ]),
  [
    4,
    "a booked capture that isn't counted",
    () => `UPDATE remit.payments SET captured_amount = 0 WHERE id = '${ids.capture.payment}'`,
    () => ids.capture.payment,
  ],
  [
    4,
    "a capture on its way that isn't counted",
    () => `UPDATE remit.payments SET captured_amount = 0 WHERE id = '${ids.openCapture.payment}'`,
    () => ids.openCapture.payment,
  ],
  [
    4,
    "a failed capture that is counted",
    () =>
      `UPDATE remit.payments SET captured_amount = 200 WHERE id = '${ids.failedCapture.payment}'`,
    () => ids.failedCapture.payment,
  ],
  [
    4,
    "a booked payment that isn't captured",
    () => `UPDATE remit.payments SET captured_amount = 100 WHERE id = '${ids.refund.payment}'`,
    () => ids.refund.payment,
  ],
  [
    4,
    "a capture lost",
    () => `DELETE FROM remit.captures WHERE id = '${ids.openCapture.part}'`,
    () => ids.openCapture.payment,
  ],
  ...(["refund", "openRefund"] as const).map((of): Break => [
    4,
    `a refund that isn't counted (${of})`,
    () => `UPDATE remit.payments SET refunded_amount = 0 WHERE id = '${ids[of].payment}'`,
    () => ids[of].payment,
  ]),
  [
    4,
    "a failed refund that is counted",
    () =>
      `UPDATE remit.payments SET refunded_amount = 100 WHERE id = '${ids.failedRefund.payment}'`,
    () => ids.failedRefund.payment,
  ],
  [
    4,
    "more refunded than captured",
    () =>
      `ALTER TABLE remit.payments DROP CONSTRAINT payments_amounts_check;
       UPDATE remit.refunds SET amount = 1001 WHERE id = '${ids.refund.part}';
       UPDATE remit.payments SET refunded_amount = 1001 WHERE id = '${ids.refund.payment}'`,
    () => ids.refund.payment,
  ],
];

const STATUSES: Break[] = [
  [
    7,
    "a refund settled without its event",
    () => `UPDATE remit.refunds SET ${SETTLED} WHERE id = '${ids.openRefund.part}'`,
    () => ids.openRefund.part,
  ],
  [
    7,
    "a settled refund called failed",
    () => `UPDATE remit.refunds SET ${FAILED} WHERE id = '${ids.refund.part}'`,
    () => ids.refund.part,
  ],
  [
    7,
    "a failed refund brought back",
    () => `UPDATE remit.refunds SET ${PENDING} WHERE id = '${ids.failedRefund.part}'`,
    () => ids.failedRefund.part,
  ],
  [
    7,
    "captured with nothing on its way",
    () => `UPDATE remit.captures SET ${FAILED} WHERE id = '${ids.finalCapture.part}'`,
    () => ids.finalCapture.payment,
  ],
  [
    7,
    "an authorization voided without its event",
    () => `UPDATE remit.payments SET status = 'voided' WHERE id = '${ids.failedCapture.payment}'`,
    () => ids.failedCapture.payment,
  ],
  [
    7,
    "a voided authorization brought back",
    () => `UPDATE remit.payments SET status = 'authorized' WHERE id = '${ids.voided}'`,
    () => ids.voided,
  ],
  [
    7,
    "a capture after the void",
    () =>
      `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, shard)
       VALUES (gen_random_uuid(), 'payment', '${ids.voided}', 4, 'payment.captured', '{}', 0)`,
    () => `payment ${ids.voided} has an event after its end`,
  ],
  [
    7,
    "settled with no capture booked",
    () =>
      `UPDATE remit.payments SET status = 'settled', settled_at = now() WHERE id = '${ids.finalCapture.payment}'`,
    () => `${ids.finalCapture.payment} is settled and has no ledger transaction`,
  ],
];

const BOOKINGS: Break[] = [
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a settled ${of} without its ledger transaction`,
    () => unbook(ids[of]),
    () => ids[of].part,
  ]),
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a booked ${of} that is still pending`,
    () => `UPDATE remit.${of}s SET ${PENDING} WHERE id = '${ids[of].part}'`,
    () => ids[of].part,
  ]),
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a booked ${of} that has failed`,
    () => `UPDATE remit.${of}s SET ${FAILED} WHERE id = '${ids[of].part}'`,
    () => `ledger transaction ${ids[of].transaction} is a ${of} without the ${of}`,
  ]),
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a ${of} booked with another amount`,
    () =>
      `UPDATE remit.ledger_entries SET amount = 99 WHERE transaction_id = '${ids[of].transaction}'`,
    () => ids[of].part,
  ]),
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a ${of} booked the wrong way round`,
    () =>
      `UPDATE remit.ledger_entries SET direction = CASE direction WHEN 'debit' THEN 'credit' ELSE 'debit' END WHERE transaction_id = '${ids[of].transaction}'`,
    () => ids[of].part,
  ]),
  ...(["openCapture", "failedCapture"] as const).map((of): Break => [
    9,
    `a ledger transaction of a capture that isn't settled (${of})`,
    () => book(ids[of], "capture_id", 1_000),
    () => ids[of].part,
  ]),
  ...(["openRefund", "failedRefund"] as const).map((of): Break => [
    9,
    `a ledger transaction of a refund that isn't settled (${of})`,
    () => book(ids[of], "refund_id", 100),
    () => ids[of].part,
  ]),
  ...(["openCapture", "openRefund"] as const).map((of): Break => [
    9,
    `published and lost on the way (${of})`,
    () => `UPDATE remit.outbox SET ${PUBLISHED} WHERE id = '${ids[of].message}'`,
    () => ids[of].message,
  ]),
  ...(["openCapture", "openRefund"] as const).map((of): Break => [
    9,
    `refused, and still on its way (${of})`,
    () =>
      `INSERT INTO remit.inbox (consumer, message_id, type, payload, processed_at, outcome, error) VALUES ('ledger', '${ids[of].message}', 'x', '{}', now(), 'refused', 'x')`,
    () => ids[of].part,
  ]),
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a ${of} booked for a message of another payment`,
    () =>
      `UPDATE remit.ledger_transactions SET message_id = '${ids.openCapture.message}' WHERE id = '${ids[of].transaction}'`,
    () => ids[of].transaction,
  ]),
  [
    9,
    "a capture booked for another event of its payment",
    () =>
      `UPDATE remit.ledger_transactions SET message_id = (SELECT id FROM remit.outbox WHERE aggregate_id = '${ids.capture.payment}' AND type = 'payment.created') WHERE id = '${ids.capture.transaction}'`,
    () => ids.capture.transaction,
  ],
  [
    9,
    "a capture booked for the event of another capture",
    () =>
      `UPDATE remit.outbox SET payload = jsonb_set(payload, '{data,captureId}', to_jsonb('${ids.openCapture.part}'::text)) WHERE id = '${ids.capture.message}'`,
    () => ids.capture.transaction,
  ],
  ...(["capture", "refund"] as const).map((of): Break => [
    9,
    `a ${of} booked for another payment`,
    () =>
      `UPDATE remit.ledger_transactions SET payment_id = '${ids.openRefund.payment}' WHERE id = '${ids[of].transaction}'`,
    () => ids[of].transaction,
  ]),
];

const KEYS: Break[] = (["capture", "refund"] as const).flatMap((of): Break[] => {
  const keyOf = (): string =>
    `k.operation = '${of}' AND k.outcome ->> 'partId' = '${ids[of].part}'`;
  return [
    [
      10,
      `a ${of} whose key names another part`,
      () =>
        `UPDATE remit.idempotency_keys k SET outcome = jsonb_set(k.outcome, '{partId}', '"${ids.openCapture.part}"') WHERE ${keyOf()}`,
      () => ids[of].part,
    ],
    [
      10,
      `a ${of} whose key names another payment`,
      () =>
        `UPDATE remit.idempotency_keys k SET outcome = jsonb_set(k.outcome, '{paymentId}', '"${ids.voided}"') WHERE ${keyOf()}`,
      () => ids[of].part,
    ],
    [
      10,
      `a key of a ${of} that names no part at all`,
      () =>
        `ALTER TABLE remit.idempotency_keys DROP CONSTRAINT idempotency_keys_outcome_check;
         UPDATE remit.idempotency_keys k SET outcome = jsonb_set(k.outcome, '{partId}', '"nonsense"') WHERE ${keyOf()}`,
      () => `is accepted and has no ${of}`,
    ],
  ];
});

test("nothing is broken before a break is planted", async () => {
  const { invariants } = await verify(database().app, { graceSeconds: 60 });
  expect(invariants.filter(({ ok }) => !ok)).toEqual([]);
});

test.each([...HOLDS, ...SUMS, ...STATUSES, ...BOOKINGS, ...KEYS])(
  "invariant %i: %s is found and named",
  async (number, _what, sql, named) => {
    const { invariants } = await verifyPlanted(database(), sql());
    const found = invariants.find((invariant) => invariant.number === number);
    expect(found?.violations).toBeGreaterThan(0);
    expect(found?.examples.join("\n")).toContain(named());
  },
);
