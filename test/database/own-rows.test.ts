import { v7 as uuidv7 } from "uuid";
import {
  eventRow,
  keyRow,
  paymentRows,
  refundRows,
  settledCapture,
  transactionRows,
} from "../support/attacks.ts";
import { attempt as attemptOn } from "../support/attempt.ts";
import type { Statement } from "../support/attempt.ts";
import { expectInvariants, useDatabase } from "../support/database.ts";
import { openParts } from "../support/part-scene.ts";
import type { Part, Parts } from "../support/part-scene.ts";

/** Each row stands for its own: what names a stranger's, or nothing, is refused at the commit. */
const database = useDatabase();
let ids: Parts;
/** The message of an automatic payment that is booked, and an authorization's. */
let message: { paid: string; authorized: string };

beforeAll(async () => {
  ids = await openParts(database());
  const [ofPaid, ofAuthorized] = await Promise.all(
    [ids.openRefund.payment, ids.openCapture.payment].map(async (id) => {
      const [row] = await database().admin<{ id: string }>(
        "SELECT id FROM remit.outbox WHERE aggregate_id = $1 AND type = 'payment.created'",
        [id],
      );
      return row?.id ?? "";
    }),
  );
  message = { paid: ofPaid ?? "", authorized: ofAuthorized ?? "" };
});
afterEach(async () => {
  await expectInvariants(database());
});

async function attempt(...statements: Statement[]): Promise<string> {
  return await attemptOn(database(), ...statements);
}

const bookedCapture = (of: Pick<Part, "payment" | "part" | "message">): Statement[] =>
  transactionRows(
    { payment: of.payment, kind: "capture", part: of.part, message: of.message },
    [ids.payer, "debit", 1_000],
    [ids.seller, "credit", 1_000],
  );

describe("a ledger transaction", () => {
  test.each([
    ["a message that nobody sent", () => uuidv7()],
    ["another payment's event", () => message.paid],
    ["another kind of event of its payment", () => message.authorized],
    ["the event of another capture", () => ids.capture.message],
  ])("can't stand for %s", async (_what, messageOf) => {
    const rows = bookedCapture({ ...ids.openCapture, message: messageOf() });
    expect(await attempt(...settledCapture(ids.openCapture, 1_000), ...rows)).toMatch(
      /^ledger_transactions_(event_check|message_id_key)$/,
    );
  });
});

describe("an event", () => {
  test.each(["payment", "refund"] as const)(
    "of a %s that isn't there can't be written",
    async (of) => {
      expect(await attempt(eventRow(of, uuidv7(), `${of}.created`))).toBe(`${of}s_events_check`);
    },
  );

  test("whose id the ledger has decided about beforehand can't be written", async () => {
    const event = uuidv7();
    const decided: Statement = [
      `INSERT INTO remit.inbox (consumer, message_id, type, payload, processed_at, outcome, error)
       VALUES ('ledger', $1, 'payment.created', '{}', now(), 'refused', 'message_unknown')`,
      event,
    ];
    const rows = paymentRows({ key: "decided", from: ids.payer, to: ids.seller, amount: 1 });
    const made = rows.map(([text, ...values]): Statement => {
      const isEvent = text.includes("INSERT INTO remit.outbox");
      return isEvent ? [text, event, ...values.slice(1)] : [text, ...values];
    });
    expect(await attempt(decided, ...made)).toBe("inbox_refused_check");
    expect(await attempt(decided)).toBe("nothing");
    expect(await attempt(...made)).toBe("outbox_undecided_check");
  });
});

describe("a key", () => {
  const anOrder = (key: string): Statement[] =>
    paymentRows({ key, from: ids.payer, to: ids.seller, amount: 1 });

  test("that says nothing of the payment keeps it from being made", async () => {
    const [, ...withoutKey] = anOrder("none");
    expect(await attempt(...withoutKey)).toBe("payments_with_key_check");
    const ofRefund = keyRow("of-refund", {
      operation: "refund",
      payment: ids.openRefund.payment,
      part: ids.openRefund.part,
    });
    const [, ...rows] = anOrder("of-refund");
    expect(await attempt(...rows, ofRefund)).toBe("payments_with_key_check");
  });

  test("of one refund can't make a second one", async () => {
    const anotherRefund = (): Statement[] =>
      refundRows({ payment: ids.refund.payment, account: ids.seller, amount: 1 });
    const [, ...withoutKey] = anotherRefund();
    expect(await attempt(...anotherRefund(), ...withoutKey)).toBe("refunds_with_key_check");
  });

  test.each([
    ["pay", () => ({ payment: uuidv7() })],
    ["capture", () => ({ payment: ids.openCapture.payment, part: ids.capture.part })],
    ["refund", () => ({ payment: ids.openRefund.payment, part: ids.refund.part })],
    ["void", () => ({ payment: ids.openCapture.payment })],
  ] as const)("can't say that a %s was accepted that wasn't made", async (operation, of) => {
    expect(await attempt(keyRow("said", { operation, ...of() }))).toBe(
      "idempotency_keys_kept_check",
    );
  });

  test("whose payment was made can't be turned into a refusal, in its own transaction either", async () => {
    const refusal: Statement = [
      `UPDATE remit.idempotency_keys SET outcome = '{"decision": "refused", "code": "x", "message": "x"}' WHERE key = 'turned'`,
    ];
    expect(await attempt(...anOrder("turned"), refusal)).toBe("idempotency_keys_decided_check");
  });

  test.each([
    ["no decision", "{}"],
    ["another decision", '{"decision": "maybe"}'],
    ["an acceptance of nothing", '{"decision": "accepted"}'],
    [
      "an acceptance of a payment in another spelling",
      '{"decision": "accepted", "paymentId": "0198F3A0-0000-7000-8000-000000000000"}',
    ],
    [
      "a payment with a part",
      '{"decision": "accepted", "paymentId": "0198f3a0-0000-7000-8000-000000000000", "partId": "0198f3a0-0000-7000-8000-000000000001"}',
    ],
    ["a refusal without its code", '{"decision": "refused", "message": "x"}'],
    ["a refusal whose words are a number", '{"decision": "refused", "code": "x", "message": 1}'],
    ["a list", "[]"],
    ["null", "null"],
  ])("can't have %s as its outcome", async (_what, outcome) => {
    expect(
      await attempt([
        `INSERT INTO remit.idempotency_keys (merchant, key, operation, fingerprint, request_id, outcome)
         VALUES ('default', 'shape', 'pay', 'x', 'x', $1)`,
        outcome,
      ]),
    ).toBe("idempotency_keys_outcome_check");
  });
});

describe("a time", () => {
  const FAR = ["infinity", "-infinity", "2999-01-01", "1970-01-01"];
  const columns: [table: string, column: string, where: string, allowed: string[]][] = [
    ["outbox", "published_at", "status = 'PUBLISHED'", []],
    ["outbox", "lease_until", "true", []],
    ["outbox", "next_attempt_at", "true", ["-infinity"]],
    ["payments", "updated_at", "true", []],
    ["payments", "settled_at", "settled_at IS NOT NULL", []],
    ["captures", "settled_at", "settled_at IS NOT NULL", []],
    ["refunds", "settled_at", "settled_at IS NOT NULL", []],
    ["inbox", "processed_at", "true", []],
  ];
  test.each(
    columns.flatMap(([table, column, where, allowed]) =>
      FAR.filter((time) => !allowed.includes(time)).map((time) => ({ table, column, where, time })),
    ),
  )("$time is refused as $column of $table", async ({ table, column, where, time }) => {
    await database().admin(
      `UPDATE remit.outbox SET status = 'PUBLISHED', broker_message_id = 'x', published_at = now()
        WHERE aggregate_id = '${ids.openCapture.payment}' AND type = 'payment.created'`,
    );
    expect(await attempt([`UPDATE remit.${table} SET ${column} = '${time}' WHERE ${where}`])).toBe(
      `${table}_times_check`,
    );
  });

  test.each(["infinity", "2999-01-01", "1970-01-01"])(
    "%s is refused as the end of an authorization",
    async (time) => {
      const rows = paymentRows({ key: "far", from: ids.payer, to: ids.seller, amount: 1 });
      const made = rows.map(([text, ...values]): Statement => {
        if (!text.includes("INSERT INTO remit.payments")) return [text, ...values];
        const manual = text
          .replace("version)", "version, expires_at)")
          .replace("'automatic', 'pending'", "'manual', 'authorized'")
          .replace("1)", `1, '${time}')`);
        return [manual, ...values];
      });
      expect(await attempt(...made)).toMatch(/^payments_expires(_range)?_check$/);
    },
  );

  test("is judged only where a statement changes it: after a clock was set back nothing is in the way", async () => {
    await database().admin(
      `SET session_replication_role = replica;
       UPDATE remit.payments SET updated_at = now() + interval '1 day' WHERE id = '${ids.openCapture.payment}';
       SET session_replication_role = origin`,
    );
    expect(
      await attempt(...settledCapture(ids.openCapture, 1_000), ...bookedCapture(ids.openCapture)),
    ).toBe("nothing");
  });
});

test("every function of the database looks into the caller's temporary schema last", async () => {
  const rows = await database().admin<{ name: string }>(
    `SELECT proname AS name
       FROM pg_proc
      WHERE pronamespace = 'remit'::regnamespace
        AND NOT coalesce(proconfig @> ARRAY['search_path=remit, pg_temp'], false)`,
  );
  expect(rows).toEqual([]);
});

test("a caller's own functions and types change no rule", async () => {
  const { payment } = ids.openCapture;
  const lie: Statement[] = [
    [
      "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$",
    ],
    ["CREATE DOMAIN pg_temp.uuid AS text"],
    ["CREATE DOMAIN pg_temp.bigint AS text"],
    ["SET LOCAL search_path = pg_temp, remit, pg_catalog"],
  ];
  expect(
    await attempt(...lie, [
      `UPDATE remit.idempotency_keys SET outcome = '{"decision": "refused", "code": "x", "message": "x"}' WHERE outcome ->> 'paymentId' = $1 AND operation = 'pay'`,
      payment,
    ]),
  ).toBe("idempotency_keys_decided_check");
});
