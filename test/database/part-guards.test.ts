import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { changeAccountStatus } from "../../src/database/account-queries.ts";
import { verify } from "../../src/database/invariants.ts";
import { captureRows, transactionRows } from "../support/attacks.ts";
import { attempt } from "../support/attempt.ts";
import { eventually } from "../support/eventually.ts";
import type { Statement } from "../support/attempt.ts";
import {
  aPayment,
  anOperation,
  cloneDatabase,
  createdMessage,
  expectInvariants,
  fundedAccount,
  newestMessage,
  useDatabase,
} from "../support/database.ts";
import type { TestDatabase } from "../support/database.ts";

/** What the database itself refuses about captures and refunds, whatever our code does. */
const database = useDatabase();
const PERMISSION_DENIED = "42501";
let ids: Scene;

/** An authorization of 100.00 of which 40.00 are on their way, and a settled payment of which 5.00 are. */
interface Scene {
  readonly authorized: string;
  readonly captureId: string;
  readonly settled: string;
  readonly refundId: string;
}

async function setScene(at: TestDatabase): Promise<Scene> {
  await fundedAccount(at, "alice", { amountMinor: 100_000n });
  await fundedAccount(at, "shop", { kind: "merchant" });
  await fundedAccount(at, "bob", { amountMinor: 100_000n });
  const manual = { capture: "manual" as const, expiresInSeconds: 3_600 };
  const authorized = aPayment({ amountMinor: "10000", ...manual });
  const settled = aPayment();
  await recordPayment(at.app, authorized);
  await recordPayment(at.app, settled);
  await applyLedgerEntries(at.app, await createdMessage(at.admin, settled.paymentId));
  const part = { amountMinor: "4000", currency: null, final: false };
  const captured = await capturePayment(at.app, anOperation(authorized.paymentId, part));
  const refundId = uuidv7();
  await recordRefund(at.app, {
    refundId,
    ...anOperation(settled.paymentId, { amountMinor: "500", currency: null, reason: null }),
  });
  if (!("receipt" in captured)) throw new Error(captured.outcome);
  return {
    authorized: authorized.paymentId,
    captureId: captured.receipt.captureId,
    settled: settled.paymentId,
    refundId,
  };
}

beforeAll(async () => {
  ids = await setScene(database());
});
afterEach(async () => {
  await expectInvariants(database());
});

function post(
  { payment, part, column }: { payment: string; part: string; column: "capture_id" | "refund_id" },
  ...entries: [account: string, direction: string, amount: number][]
): Statement[] {
  const kind = column === "capture_id" ? "capture" : "refund";
  return transactionRows({ payment, kind, part }, ...entries);
}

const SETTLE_CAPTURE =
  "UPDATE remit.captures SET status = 'settled', settled_at = now() WHERE id = $1";
const SETTLE_REFUND =
  "UPDATE remit.refunds SET status = 'settled', settled_at = now() WHERE id = $1";

describe("a capture", () => {
  test.each<[string, () => Statement[], string]>([
    ["settled without a booking", () => [[SETTLE_CAPTURE, ids.captureId]], "payments_hold_check"],
    [
      "failed without its amount given back",
      () => [
        [
          "UPDATE remit.captures SET status = 'failed', failure_code = 'x' WHERE id = $1",
          ids.captureId,
        ],
      ],
      "payments_captured_check",
    ],
    [
      "booked with another amount",
      () => [
        [SETTLE_CAPTURE, ids.captureId],
        ["UPDATE remit.holds SET remaining = 6000 WHERE payment_id = $1", ids.authorized],
        ...post(
          { payment: ids.authorized, part: ids.captureId, column: "capture_id" },
          ["alice", "debit", 3_999],
          ["shop", "credit", 3_999],
        ),
      ],
      "payments_booked_check",
    ],
    [
      "booked for another payment",
      () =>
        post(
          { payment: ids.settled, part: ids.captureId, column: "capture_id" },
          ["alice", "debit", 4_000],
          ["shop", "credit", 4_000],
        ),
      "payments_booked_check",
    ],
    [
      "beside an open one",
      () => [
        [
          "INSERT INTO remit.captures (id, payment_id, idempotency_key, amount, final) VALUES ($1, $2, 'k', 1, false)",
          uuidv7(),
          ids.authorized,
        ],
      ],
      "captures_one_open_key",
    ],
    [
      "of an automatic payment",
      () => [
        [
          "INSERT INTO remit.captures (id, payment_id, idempotency_key, amount, final) VALUES ($1, $2, 'k', 1, false)",
          uuidv7(),
          ids.settled,
        ],
      ],
      "captures_manual_check",
    ],
    [
      "of another amount afterwards",
      () => [["UPDATE remit.captures SET amount = 1 WHERE id = $1", ids.captureId]],
      PERMISSION_DENIED,
    ],
    [
      "that is deleted",
      () => [["DELETE FROM remit.captures WHERE id = $1", ids.captureId]],
      PERMISSION_DENIED,
    ],
  ])("%s is refused", async (_name, statements, expected) => {
    expect(await attempt(database(), ...statements())).toBe(expected);
  });
});

describe("an authorization", () => {
  test.each<[string, () => Statement[], string]>([
    [
      "whose hold is let go alone",
      () => [["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", ids.authorized]],
      "payments_hold_check",
    ],
    [
      "that counts more as captured than its captures are",
      () => [
        [
          "UPDATE remit.payments SET captured_amount = 5000, version = version + 1 WHERE id = $1",
          ids.authorized,
        ],
      ],
      "payments_captured_check",
    ],
    [
      "that becomes cancelled, which only an automatic payment can be",
      () => [["UPDATE remit.payments SET status = 'cancelled' WHERE id = $1", ids.authorized]],
      "payments_transition_check",
    ],
    [
      "voided with a capture on its way",
      () => [
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", ids.authorized],
        [
          "UPDATE remit.payments SET status = 'voided', version = version + 1 WHERE id = $1",
          ids.authorized,
        ],
      ],
      "payments_captured_check",
    ],
    [
      "without an end",
      () => [
        [
          "INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, version) VALUES ($1, 'default', 'x', 'alice', 'shop', 1, 'EUR', 'manual', 'authorized', 1)",
          uuidv7(),
        ],
      ],
      "payments_expires_check",
    ],
  ])("%s is refused", async (_name, statements, expected) => {
    expect(await attempt(database(), ...statements())).toBe(expected);
  });
});

describe("two transactions that are each right by themselves", () => {
  test("can't end a payment for good while its last capture is booked: the judge of one waits for the other", async () => {
    const clone = await cloneDatabase(3);
    await setScene(clone);
    const authorization = aPayment({
      amountMinor: "1000",
      capture: "manual",
      expiresInSeconds: 3_600,
    });
    const { paymentId } = authorization;
    await recordPayment(clone.app, authorization);
    const captureId = uuidv7();
    const event = (type: string, data: object): Statement => [
      "INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ($1, 'payment', $2, $3, $4)",
      uuidv7(),
      paymentId,
      type,
      JSON.stringify({ data }),
    ];
    const capture: Statement[] = [
      ...captureRows({ key: "k", payment: paymentId, amount: 1_000, id: captureId }),
      [
        "UPDATE remit.payments SET captured_amount = 1000, version = version + 1 WHERE id = $1",
        paymentId,
      ],
      event("payment.captured", { captureId }),
    ];
    expect(await attempt(clone, ...capture)).toBe("nothing");
    const end: Statement[] = [
      [
        "UPDATE remit.payments SET status = 'captured', version = version + 1 WHERE id = $1",
        paymentId,
      ],
      event("payment.released", {}),
    ];
    const book: Statement[] = [
      [SETTLE_CAPTURE, captureId],
      ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", paymentId],
      ...post(
        { payment: paymentId, part: captureId, column: "capture_id" },
        ["alice", "debit", 1_000],
        ["shop", "credit", 1_000],
      ),
    ];
    const [one, other] = await Promise.all([clone.app.pool.connect(), clone.app.pool.connect()]);
    try {
      await one.query("BEGIN");
      await other.query("BEGIN");
      for (const [text, ...values] of end) await one.query(text, values);
      for (const [text, ...values] of book) await other.query(text, values);
      const { rows } = await other.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      const judged = other.query("SET CONSTRAINTS ALL IMMEDIATE").then(
        () => "nothing",
        (error: { constraint?: string }) => error.constraint,
      );
      const isWaiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = $1";
      await eventually(async () =>
        expect((await clone.app.pool.query(isWaiting, [rows[0]?.pid])).rowCount).toBe(1),
      );
      await one.query("COMMIT");
      expect(await judged).toBe("payments_captured_check");
    } finally {
      await Promise.all([one, other].map(async (client) => await client.query("ROLLBACK")));
      one.release();
      other.release();
      await clone.drop();
    }
  });
});

describe("a refund", () => {
  const insert = (amount: number, currency = "EUR"): Statement => [
    "INSERT INTO remit.refunds (id, payment_id, idempotency_key, amount, currency) VALUES ($1, $2, 'k', $3, $4)",
    uuidv7(),
    ids.settled,
    amount,
    currency,
  ];
  test.each<[string, () => Statement[], string]>([
    ["without a hold", () => [insert(1)], "refunds_hold_check"],
    ["of more than is left", () => [insert(751)], "payments_amounts_check"],
    [
      "whose hold is let go alone",
      () => [["UPDATE remit.holds SET remaining = 0 WHERE refund_id = $1", ids.refundId]],
      "refunds_hold_check",
    ],
    [
      "settled without a booking",
      () => [
        [SETTLE_REFUND, ids.refundId],
        ["UPDATE remit.holds SET remaining = 0 WHERE refund_id = $1", ids.refundId],
      ],
      "refunds_booked_check",
    ],
    [
      "booked without its event",
      () => [
        [SETTLE_REFUND, ids.refundId],
        ["UPDATE remit.holds SET remaining = 0 WHERE refund_id = $1", ids.refundId],
        ...post(
          { payment: ids.settled, part: ids.refundId, column: "refund_id" },
          ["shop", "debit", 500],
          ["alice", "credit", 500],
        ),
      ],
      "refunds_events_check",
    ],
    [
      "booked with somebody else's money riding along",
      () => [
        [SETTLE_REFUND, ids.refundId],
        ["UPDATE remit.holds SET remaining = 0 WHERE refund_id = $1", ids.refundId],
        ...post(
          { payment: ids.settled, part: ids.refundId, column: "refund_id" },
          ["shop", "debit", 500],
          ["alice", "credit", 500],
          ["shop", "debit", 1],
          ["world:EUR", "credit", 1],
        ),
      ],
      "refunds_booked_check",
    ],
    [
      "that is pending, with strangers' money booked under it",
      () =>
        post(
          { payment: ids.settled, part: ids.refundId, column: "refund_id" },
          ["bob", "debit", 10_000],
          ["world:EUR", "credit", 10_000],
        ),
      "refunds_booked_check",
    ],
    [
      "booked for another payment",
      () =>
        post(
          { payment: ids.authorized, part: ids.refundId, column: "refund_id" },
          ["shop", "debit", 500],
          ["alice", "credit", 500],
        ),
      "refunds_booked_check",
    ],
    [
      "that a payment counts by hand",
      () => [["UPDATE remit.payments SET refunded_amount = 0 WHERE id = $1", ids.settled]],
      PERMISSION_DENIED,
    ],
    [
      "that is deleted",
      () => [["DELETE FROM remit.refunds WHERE id = $1", ids.refundId]],
      PERMISSION_DENIED,
    ],
  ])("%s is refused", async (_name, statements, expected) => {
    expect(await attempt(database(), ...statements())).toBe(expected);
  });

  test("that is decided keeps its decision", async () => {
    const refund = anOperation(ids.settled, { amountMinor: "1", currency: null, reason: null });
    const refundId = uuidv7();
    await recordRefund(database().app, { refundId, ...refund });
    const message = { paymentId: ids.settled, type: "refund.created" };
    await applyLedgerEntries(database().app, await newestMessage(database().admin, message));
    const reopen: Statement = [
      "UPDATE remit.refunds SET status = 'failed', failure_code = 'x', settled_at = NULL WHERE id = $1",
      refundId,
    ];
    expect(await attempt(database(), reopen)).toBe("refunds_transition_check");
    const rewrite: Statement = [
      `UPDATE remit.idempotency_keys SET outcome = '{"decision": "refused", "code": "x", "message": "x"}' WHERE key = $1`,
      refund.idempotencyKey,
    ];
    expect(await attempt(database(), rewrite)).toBe("idempotency_keys_decided_check");
  });
});

test("an account that is closed stays closed", async () => {
  await fundedAccount(database(), "gone");
  await changeAccountStatus(database().app, { accountId: "gone", status: "closed" });
  expect(
    await attempt(database(), ["UPDATE remit.accounts SET status = 'active' WHERE id = 'gone'"]),
  ).toBe("accounts_closed_for_ever_check");
});

describe("planted faults: with a guard taken away, its attack goes through, and verify names it", () => {
  test.each<[string, string, (scene: Scene) => Statement[], number]>([
    [
      "the whole payment",
      "DROP TRIGGER payments_whole ON remit.payments; DROP TRIGGER captures_whole ON remit.captures",
      ({ authorized }) => [
        [
          "UPDATE remit.payments SET captured_amount = 5000, version = version + 1 WHERE id = $1",
          authorized,
        ],
      ],
      4,
    ],
    [
      "the whole hold",
      "DROP TRIGGER holds_whole ON remit.holds",
      ({ authorized }) => [
        ["UPDATE remit.holds SET remaining = 0 WHERE payment_id = $1", authorized],
      ],
      3,
    ],
    [
      "the whole refund",
      "DROP TRIGGER refunds_whole ON remit.refunds; DROP TRIGGER holds_refund_whole ON remit.holds",
      ({ refundId }) => [["UPDATE remit.holds SET remaining = 0 WHERE refund_id = $1", refundId]],
      3,
    ],
    [
      "the booked refund",
      "DROP TRIGGER refunds_whole ON remit.refunds; DROP TRIGGER holds_refund_whole ON remit.holds",
      ({ refundId }) => [
        [SETTLE_REFUND, refundId],
        ["UPDATE remit.holds SET remaining = 0 WHERE refund_id = $1", refundId],
      ],
      9,
    ],
  ])("%s", async (_name, takeAway, attack, invariant) => {
    const clone = await cloneDatabase(2);
    try {
      const scene = await setScene(clone);
      expect(await attempt(clone, ...attack(scene))).not.toBe("nothing");
      await clone.admin(takeAway);
      expect(await attempt(clone, ...attack(scene))).toBe("nothing");
      const { invariants } = await verify(clone.app, { graceSeconds: 60 });
      expect(invariants.filter(({ ok }) => !ok).map(({ number }) => number)).toContain(invariant);
    } finally {
      await clone.drop();
    }
  });
});
