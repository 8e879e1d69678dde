import type { PaymentAnswer } from "../client/payment-client.ts";
import { outboxRowsOf } from "../database/demo-queries.ts";
import type { OutboxRow } from "../database/demo-queries.ts";
import { outboxStatus } from "../database/outbox-view-queries.ts";
import { whileBrokerIsFrozen } from "./demo-processes.ts";
import { SETTLE_MS_MAX, accountOf, topUp } from "./demo-stage.ts";
import type { Stage } from "./demo-stage.ts";
import { relayStatuses } from "./relay.ts";
import { claim, eventually } from "./story.ts";

const PAYMENTS_A_ROUND = 10;
const ROUNDS = 2;
const PAYMENTS = PAYMENTS_A_ROUND * ROUNDS;

/** The broker stands still for some seconds, and payments go on being accepted. */
export async function playOutage(stage: Stage): Promise<void> {
  const { story, database, payments } = stage;
  await topUp(stage, BigInt(PAYMENTS) * 100n);
  story.scene(`The broker is away while ${PAYMENTS} payments of 1.00 EUR are accepted`);
  const shop = await accountOf(database, "shop");
  const answers: PaymentAnswer[] = [];
  await whileBrokerIsFrozen(stage, async ({ pid }) => {
    story.tell({
      step: "stopped",
      text: `kill -STOP ${pid}: SNS and SQS answer nobody`,
      facts: { pid },
    });
    for (let round = 0; round < ROUNDS; round += 1) {
      answers.push(...(await payRound(stage, round)));
      await tellBacklog(stage, answers.length);
    }
    await tellWhy(stage);
    const rows = await outboxRowsOf(database, idsOf(answers));
    claim(
      rows.every(({ attempts }) => attempts === 0),
      "an outage burns no attempt",
    );
    story.tell({
      step: "unharmed",
      text: "no attempt is burned: none of them can become DEAD by this",
      facts: {},
    });
  });
  story.tell({ step: "continued", text: "kill -CONT: the broker is back", facts: {} });
  const resumedAtMs = story.elapsedMs();
  const ends = await Promise.all(
    answers.map(async (answer) => await payments.waitForEnd(answer, { timeoutMs: SETTLE_MS_MAX })),
  );
  claim(
    ends.every(({ status }) => status === "settled"),
    `all ${PAYMENTS} payments are settled`,
  );
  await tellDrained(stage, { answers, resumedAtMs });
  const { postedMinor } = await accountOf(database, "shop");
  claim(
    postedMinor - shop.postedMinor === BigInt(PAYMENTS) * 100n,
    `shop has ${PAYMENTS}.00 EUR more`,
  );
  story.tell({
    step: "settled",
    text: `all ${PAYMENTS} of them, each booked once: shop has ${PAYMENTS}.00 EUR more`,
    facts: { payments: PAYMENTS, creditedMinor: postedMinor - shop.postedMinor },
  });
}

async function payRound({ payments, run }: Stage, round: number): Promise<PaymentAnswer[]> {
  return await Promise.all(
    Array.from(
      { length: PAYMENTS_A_ROUND },
      async (_, index) =>
        await payments.pay({
          key: `${run}-${round * PAYMENTS_A_ROUND + index + 1}`,
          from: "alice",
          to: "shop",
          amount: "1.00",
          currency: "EUR",
        }),
    ),
  );
}

async function tellBacklog({ story, database }: Stage, accepted: number): Promise<void> {
  const status = await outboxStatus(database);
  claim(status.pending >= accepted, `${accepted} events wait, found ${status.pending}`);
  const age = (status.oldestPendingAgeSeconds ?? 0).toFixed(1);
  story.tell({
    step: "accepted",
    text: `${accepted} payments by now; remit outbox status: ${status.pending} pending, the oldest for ${age} s; ${status.dead} dead`,
    facts: { accepted, ...status },
  });
}

/** A send must have timed out (3 s), and a heartbeat must have said so. */
async function tellWhy({ story, client }: Stage): Promise<void> {
  const relay = await eventually("the relay says that the broker is away", async () =>
    (await relayStatuses(client)).find(({ reason }) => reason?.startsWith("waits: ")),
  );
  story.tell({
    step: "waiting",
    text: `remit relay status: ${relay.workflowId} ${relay.state} (${relay.reason})`,
    facts: { ...relay },
  });
}

async function tellDrained(
  { story, database }: Stage,
  { answers, resumedAtMs }: { answers: readonly PaymentAnswer[]; resumedAtMs: number },
): Promise<void> {
  const rows = await eventually("every event is published", async () => {
    const all = await outboxRowsOf(database, idsOf(answers));
    return all.every(({ status }) => status === "PUBLISHED") ? all : null;
  });
  const attempts = rows.reduce((sum, row) => sum + row.attempts, 0);
  claim(attempts === 0, `no attempt is burned, found ${attempts}`);
  claim(isInOrder(rows), "each payment's events went out in their order");
  const tookMs = story.elapsedMs() - resumedAtMs;
  story.tell({
    step: "drained",
    text: `${rows.length} events within ${(tookMs / 1_000).toFixed(1)} s, each payment's in their order`,
    facts: { events: rows.length, attempts, tookMs },
  });
}

function isInOrder(rows: readonly OutboxRow[]): boolean {
  return [...Map.groupBy(rows, ({ aggregateId }) => aggregateId).values()].every((events) =>
    events.every(({ publishedAt, version }, index) => {
      const earlier = events[index - 1]?.publishedAt?.getTime() ?? 0;
      return version === index + 1 && (publishedAt?.getTime() ?? 0) >= earlier;
    }),
  );
}

function idsOf(answers: readonly PaymentAnswer[]): string[] {
  return answers.map(({ paymentId }) => paymentId);
}
