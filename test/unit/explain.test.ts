import { whatHappened } from "../../src/cli/explain-events.ts";
import { whatIsNext } from "../../src/cli/explain-next.ts";
import { refusalText, storyText, tellPayment } from "../../src/cli/explain-text.ts";
import { createProgram } from "../../src/cli/program.ts";
import type { PaymentFacts } from "../../src/database/payment-facts.ts";
import type { MessageTrace } from "../../src/database/payment-trace.ts";

const ID = "01a20000-0000-7000-8000-000000000001";
const MESSAGE = "01a20000-0000-7000-8000-000000000002";
const CAPTURE = "01a20000-0000-7000-8000-000000000003";
const REFUND = "01a20000-0000-7000-8000-000000000004";
const START = Date.parse("2026-12-01T08:00:00.000Z");
const after = (ms: number): Date => new Date(START + ms);

function aMessage(changes: Partial<MessageTrace> = {}): MessageTrace {
  return {
    messageId: MESSAGE,
    aggregateType: "payment",
    aggregateId: ID,
    type: "payment.created",
    version: 1,
    captureId: null,
    status: "PENDING",
    claims: 0,
    attempts: 0,
    nextAttemptAt: null,
    leaseUntil: null,
    lastError: null,
    brokerMessageId: null,
    createdAt: after(0),
    publishedAt: null,
    deliveries: null,
    receivedAt: null,
    processedAt: null,
    outcome: null,
    error: null,
    ...changes,
  };
}

const PUBLISHED = {
  status: "PUBLISHED",
  claims: 1,
  brokerMessageId: "sns-1",
  publishedAt: after(40),
} as const;
const BOOKED = {
  ...PUBLISHED,
  deliveries: 1,
  receivedAt: after(80),
  processedAt: after(81),
  outcome: "booked",
} as const;

/** A pending payment whose event has just been written, unless said. */
function facts({
  payment = {},
  ...changes
}: Partial<Omit<PaymentFacts, "payment">> & {
  payment?: Partial<PaymentFacts["payment"]>;
} = {}): PaymentFacts {
  return {
    readAt: after(1_000),
    payment: {
      paymentId: ID,
      merchant: "default",
      idempotencyKey: "order-1",
      source: "alice",
      destination: "shop",
      amountMinor: 1_250n,
      currency: "EUR",
      capture: "automatic",
      status: "pending",
      capturedMinor: 0n,
      refundedMinor: 0n,
      failureCode: null,
      description: null,
      expiresAt: null,
      createdAt: after(0),
      settledAt: null,
      purgedVersion: 0,
      ...payment,
    },
    operatorActions: [],
    messages: [aMessage()],
    transactions: [],
    captures: [],
    refunds: [],
    holds: [],
    accounts: [],
    ...changes,
  };
}

const BOOKING = {
  transactionId: "01a20000-0000-7000-8000-000000000005",
  messageId: MESSAGE,
  kind: "payment",
  createdAt: after(82),
  entries: [
    { accountId: "alice", direction: "debit", amountMinor: 1_250n, balanceAfterMinor: 98_750n },
    { accountId: "shop", direction: "credit", amountMinor: 1_250n, balanceAfterMinor: 101_250n },
  ],
} as const;

const SETTLED = facts({
  payment: { status: "settled", capturedMinor: 1_250n, settledAt: after(82) },
  messages: [
    aMessage({ ...BOOKED, claims: 2, deliveries: 3 }),
    aMessage({
      ...PUBLISHED,
      messageId: "m-2",
      type: "payment.settled",
      version: 2,
      // Its time was taken at the start of the commit that booked.
      createdAt: after(80),
      publishedAt: after(120),
    }),
  ],
  transactions: [BOOKING],
});

function onlyNext(given: PaymentFacts): ReturnType<typeof whatIsNext>[number] {
  const [step, ...others] = whatIsNext(given);
  expect(others).toEqual([]);
  if (step === undefined) throw new Error("nothing is next");
  return step;
}

describe("what happened to a payment", () => {
  test("keeps each line its own, whatever a description or a reason says", () => {
    const forged = "gift)\n  2026-12-01 08:00:00.999   +0.999 s  settled        (\u009b31m\r\u202e";
    const told = tellPayment(facts({ payment: { description: forged } }), () => null);
    const lines = storyText(told).split("\n");
    expect(lines.filter((line) => line.includes("+0.999 s"))).toEqual([
      expect.stringMatching(/^ {2}12\.50 EUR from alice/),
    ]);
    expect(storyText(told)).not.toMatch(/[\u0080-\u009f\r\u202e]/);
  });

  test("is told in the order of time, with counts, ids and balances before and after", () => {
    expect(whatHappened(SETTLED).map(({ step }) => step)).toEqual([
      "recorded",
      "published",
      "delivered",
      "booked",
      "settled",
      "published",
    ]);
    const text = storyText(tellPayment(SETTLED, () => null));
    expect(text).toContain(`payment ${ID}: settled`);
    expect(text).toContain(
      "12.50 EUR from alice to shop, automatic capture, key order-1 of merchant default",
    );
    expect(text).toContain("2026-12-01 08:00:00.040   +0.040 s  published");
    expect(text).toContain(
      "SNS as message sns-1, claimed twice, so it may have been sent as often",
    );
    expect(text).toContain("delivered 3 times until now");
    expect(text).toContain(
      `once, by ledger transaction ${BOOKING.transactionId}: alice 1000.00 → 987.50, shop 1000.00 → 1012.50`,
    );
    expect(text).toContain("held now: nothing");
    expect(text).toContain("nothing: it is settled, and that never changes");
    expect(text).not.toContain("What to do");
  });

  test("tells who skipped an event and why, and not that it was delivered", () => {
    const skipped = facts({
      payment: { status: "failed", failureCode: "message_skipped" },
      messages: [
        aMessage({
          status: "SKIPPED",
          receivedAt: after(60),
          processedAt: after(60),
          outcome: "refused",
          error: "message_skipped",
        }),
      ],
      operatorActions: [
        {
          at: after(60),
          action: "outbox.skip",
          actor: "ana@desk",
          reason: "told by phone",
          messageId: MESSAGE,
        },
      ],
    });
    const story = whatHappened(skipped).map(({ step, text }) => `${step}: ${text}`);
    expect(story).toHaveLength(2);
    expect(story[1]).toBe(
      "operator: ana@desk and payment.created: skipped it, for ever: what waited for it ends (told by phone)",
    );
  });

  test("is told from the ledger where retention has purged the events", () => {
    const purged = { ...SETTLED, messages: [], payment: { ...SETTLED.payment, purgedVersion: 2 } };
    expect(whatHappened(purged).map(({ step }) => step)).toEqual(["recorded", "booked", "settled"]);
    expect(onlyNext(purged)).toMatchObject({ isStuck: false });
  });

  test("names the refusal of the ledger and what became of the hold", () => {
    const failed = facts({
      payment: { status: "failed", failureCode: "account_closed" },
      messages: [
        aMessage({ ...BOOKED, outcome: "refused", error: "account_closed" }),
        aMessage({
          ...PUBLISHED,
          messageId: "m-2",
          type: "payment.failed",
          version: 2,
          createdAt: after(82),
        }),
      ],
    });
    const text = whatHappened(failed)
      .map((happening) => happening.text)
      .join("\n");
    expect(text).toContain(
      "the ledger refused payment.created: account_closed; no entry was written",
    );
    expect(text).toContain("the payment failed (account_closed): its hold on alice is released");
    expect(onlyNext(failed).text).toBe(
      "nothing: it is failed (account_closed), and that never changes",
    );
  });

  test.each(["cancelled", "voided", "expired"])(
    "tells that it is %s, and that nothing follows",
    (status) => {
      const ended = facts({
        payment: { status },
        messages: [
          aMessage(PUBLISHED),
          aMessage({ ...PUBLISHED, messageId: "m-2", type: `payment.${status}`, version: 2 }),
        ],
      });
      expect(whatHappened(ended).map(({ step }) => step)).toContain(status);
      expect(onlyNext(ended)).toMatchObject({
        text: `nothing: it is ${status}, and that never changes`,
        isStuck: false,
        remedies: [],
      });
    },
  );
});

describe("what happens next to a pending payment", () => {
  test.each<[string, Partial<MessageTrace>, Partial<PaymentFacts>, RegExp, boolean]>([
    ["its event is due", {}, {}, /waits for the relay, which looks every 2 s/, false],
    [
      "its event is due for long",
      {},
      { readAt: after(60_000) },
      /is due since 2026-12-01T08:00:00.000Z/,
      true,
    ],
    [
      "a relay sends it",
      { claims: 1, leaseUntil: after(9_000) },
      {},
      /leased payment.created until 2026-12-01T08:00:09.000Z/,
      false,
    ],
    [
      "a lease has just ended",
      { claims: 1, leaseUntil: after(500) },
      {},
      /waits for the relay/,
      false,
    ],
    [
      "an attempt failed",
      { attempts: 2, nextAttemptAt: after(8_000), lastError: "InvalidParameter: no" },
      {},
      /attempt 3 to publish payment.created is at 2026-12-01T08:00:08.000Z: last error InvalidParameter/,
      false,
    ],
    [
      "its event is dead",
      { status: "DEAD", attempts: 5, lastError: "InvalidParameter: no" },
      {},
      /DEAD after 5 attempts: last error InvalidParameter: no/,
      true,
    ],
    ["its event was skipped", { status: "SKIPPED" }, {}, /was skipped by a person/, true],
    [
      "the ledger has its event",
      PUBLISHED,
      {},
      /the supervisor takes it up by 2026-12-01T08:02:00.040Z/,
      false,
    ],
    ["its event was lost", PUBLISHED, { readAt: after(200_000) }, /no supervisor took it up/, true],
    ["the books contradict it", BOOKED, {}, /the ledger has booked payment.created, yet/, true],
  ])("where %s", (_where, message, changes, text, isStuck) => {
    const step = onlyNext(facts({ ...changes, messages: [aMessage(message)] }));
    expect(step.text).toMatch(text);
    expect(step.isStuck).toBe(isStuck);
    expect(step.remedies.length).toBeGreaterThan(0);
  });

  test("says where its event is in none of the tables", () => {
    expect(onlyNext(facts({ messages: [] }))).toMatchObject({ isStuck: true });
  });
});

describe("what happens next to a manual payment", () => {
  const authorized = {
    payment: { capture: "manual", status: "authorized", expiresAt: after(3_600_000) },
    messages: [
      aMessage(PUBLISHED),
      aMessage({ ...PUBLISHED, messageId: "m-2", type: "payment.authorized", version: 2 }),
    ],
  };
  const capture = {
    captureId: CAPTURE,
    idempotencyKey: "capture-1",
    amountMinor: 500n,
    final: false,
    status: "pending",
    failureCode: null,
    createdAt: after(500),
    settledAt: null,
  };
  const captured = aMessage({
    messageId: "m-3",
    type: "payment.captured",
    version: 3,
    captureId: CAPTURE,
    createdAt: after(500),
  });

  test("authorized, it expires at its time", () => {
    expect(onlyNext(facts(authorized))).toMatchObject({
      text: "authorized until 2026-12-01T09:00:00.000Z: then it expires, and what is left of its hold is released",
      at: after(3_600_000),
      isStuck: false,
    });
  });

  test("authorized long after its time, it is stuck", () => {
    const step = onlyNext(facts({ ...authorized, readAt: after(7_200_000) }));
    expect(step.text).toContain("should have expired by now");
    expect(step.isStuck).toBe(true);
  });

  test("with an open capture, it waits for that and for its time", () => {
    const given = facts({
      ...authorized,
      messages: [...authorized.messages, captured],
      captures: [capture],
    });
    expect(whatIsNext(given).map(({ text }) => text)).toEqual([
      expect.stringContaining("the capture of 5.00 EUR waits for the relay"),
      expect.stringContaining("authorized until"),
    ]);
    expect(whatHappened(given).at(-1)?.text).toBe(
      `capture ${CAPTURE} of 5.00 EUR is recorded, key capture-1`,
    );
  });

  test("captured, it waits for its last capture, behind an event that is dead", () => {
    const [created = aMessage(), ...others] = authorized.messages;
    const [step] = whatIsNext(
      facts({
        payment: { ...authorized.payment, status: "captured" },
        messages: [
          { ...created, ...others[0], status: "DEAD", type: "payment.created", version: 1 },
          captured,
        ],
        captures: [capture],
      }),
    );
    expect(step?.text).toContain("payment.captured waits behind payment.created, which is DEAD");
    expect(step?.isStuck).toBe(true);
  });
});

describe("a refund", () => {
  test("is told with its hold, and waited for", () => {
    const given = facts({
      ...SETTLED,
      payment: { ...SETTLED.payment, refundedMinor: 250n },
      messages: [
        ...SETTLED.messages,
        aMessage({
          messageId: "r-1",
          aggregateType: "refund",
          aggregateId: REFUND,
          type: "refund.created",
          createdAt: after(900),
        }),
      ],
      refunds: [
        {
          refundId: REFUND,
          idempotencyKey: "refund-1",
          amountMinor: 250n,
          status: "pending",
          reason: "broken",
          failureCode: null,
          createdAt: after(900),
          settledAt: null,
        },
      ],
      holds: [
        {
          accountId: "shop",
          refundId: REFUND,
          amountMinor: 250n,
          remainingMinor: 250n,
          closedAt: null,
        },
      ],
    });
    const story = tellPayment(given, (id) => `http://ui/${id}`);
    expect(story.happened.at(-1)?.text).toBe(
      `refund ${REFUND} of 2.50 EUR is recorded and held on shop, key refund-1 (broken)`,
    );
    expect(story.held).toEqual([`2.50 EUR on shop for refund ${REFUND}`]);
    expect(story.next.map(({ text }) => text)).toEqual([
      expect.stringContaining(`refund ${REFUND} of 2.50 EUR waits for the relay`),
    ]);
    expect(story.workflows.map(({ workflowUrl }) => workflowUrl)).toEqual([
      "http://ui/payment:default:order-1",
      "http://ui/refund:default:refund-1",
      `http://ui/ledger:${MESSAGE}`,
    ]);
  });
});

test("a late announcement delays no money, and says so", () => {
  const [first = aMessage(), second = aMessage()] = SETTLED.messages;
  const dead = { ...second, status: "DEAD", attempts: 5, publishedAt: null, brokerMessageId: null };
  const step = onlyNext({ ...SETTLED, messages: [first, dead] });
  expect(step.text).toMatch(/payment.settled is DEAD .*no money waits for it/);
});

test("a message that is booked and not marked will be sent again, harmlessly", () => {
  const [first = aMessage(), second = aMessage()] = SETTLED.messages;
  const unmarked = {
    ...first,
    status: "PENDING",
    publishedAt: null,
    brokerMessageId: null,
    leaseUntil: after(9_000),
  };
  const step = onlyNext({ ...SETTLED, messages: [unmarked, second] });
  expect(step.text).toMatch(/the ledger has booked it already.*leased payment.created until/);
  expect(step.isStuck).toBe(false);
});

test("a refused request is told by its key", () => {
  const text = refusalText({
    merchant: "default",
    key: "too-much",
    operation: "pay",
    createdAt: after(0),
    paymentId: null,
    refusal: { code: "insufficient_funds", message: "account alice has 1.00 EUR available" },
    parameters: { source: "alice", description: null },
  });
  expect(text).toContain("key too-much of merchant default: a pay, refused");
  expect(text).toContain("account alice has 1.00 EUR available (insufficient_funds)");
  expect(text).toContain("source: alice");
  expect(text).not.toContain("description");
});

test("every command that an explanation names exists", () => {
  const existing = new Set(
    createProgram().commands.flatMap((command) => [
      command.name(),
      ...command.commands.map((child) => `${command.name()} ${child.name()}`),
    ]),
  );
  const given = [
    facts(),
    facts({ messages: [] }),
    facts({ messages: [aMessage({ status: "DEAD" })] }),
    facts({ messages: [aMessage(PUBLISHED)] }),
    facts({ payment: { capture: "manual", status: "authorized", expiresAt: after(5_000) } }),
  ];
  const named = given
    .flatMap(whatIsNext)
    .flatMap(({ remedies }) => remedies)
    .map(({ command }) => /^remit ([a-z]+(?: [a-z]+)?)/.exec(command)?.[1] ?? command);
  expect(named.filter((command) => !existing.has(command))).toEqual([]);
});
