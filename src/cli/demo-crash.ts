import { setTimeout as delay } from "node:timers/promises";
import type { PaymentAnswer } from "../client/payment-client.ts";
import { inTransaction } from "../database/database.ts";
import type { Tx } from "../database/database.ts";
import {
  countWaiters,
  endWaiters,
  firstEvent,
  isBooked,
  lockEvent,
} from "../database/demo-queries.ts";
import { tracePayment } from "../database/payment-trace.ts";
import type { MessageTrace } from "../database/payment-trace.ts";
import { DomainError } from "../domain/errors.ts";
import { killWorker, whileBrokerIsFrozen, workerAfter } from "./demo-processes.ts";
import type { FrozenProcess } from "./demo-processes.ts";
import { SETTLE_MS_MAX, accountOf, topUp } from "./demo-stage.ts";
import type { Stage } from "./demo-stage.ts";
import { times } from "./explain-events.ts";
import { storyText } from "./explain-text.ts";
import { story as storyOf } from "./explain.ts";
import { claim, eventually } from "./story.ts";

/**
 * The worker dies at the one point where an outbox can't help sending twice: the broker has taken the message, and the
 * row doesn't say so yet. Nothing in the product helps to hit it; a lock of ours on the row keeps the mark waiting.
 */
export async function playCrash(stage: Stage): Promise<void> {
  const { story, database, payments } = stage;
  for (let attempt = 1; ; attempt += 1) {
    await topUp(stage);
    story.scene("kill -9 of the worker, after SNS has the message and before the outbox says so");
    const shop = await accountOf(database, "shop");
    const crash = await crashAtTheMark(stage, attempt);
    if (crash === null) {
      if (attempt < CRASHES_MAX) continue;
      throw new DomainError(
        "verify",
        "a claim of the demo doesn't hold: the mark can be kept waiting",
      );
    }
    const worker = await workerAfter(stage, crash.killed);
    story.tell({
      step: "restarted",
      text: `the stack started another worker, pid ${worker}`,
      facts: { pid: worker },
    });
    const end = await payments.waitForEnd(crash.answer, { timeoutMs: SETTLE_MS_MAX });
    claim(end.status === "settled", `the payment is settled, found ${end.status}`);
    await tellEvidence(stage, { ...crash, shopBefore: shop.postedMinor });
    return;
  }
}

/** The machine may be so busy that the mark gives up (2 s) before we look; then nothing has happened, and we try again. */
const CRASHES_MAX = 3;

interface Crash {
  readonly answer: PaymentAnswer;
  readonly messageId: string;
  readonly killed: number;
}

async function crashAtTheMark(stage: Stage, attempt: number): Promise<Crash | null> {
  const { story, database, payments, run } = stage;
  return await whileBrokerIsFrozen(stage, async (broker) => {
    story.tell({
      step: "stopped",
      text: `kill -STOP ${broker.pid}: the broker is kept from answering`,
      facts: { pid: broker.pid },
    });
    const answer = await payments.pay({
      key: `${run}-${attempt}`,
      from: "alice",
      to: "shop",
      amount: "12.50",
      currency: "EUR",
    });
    const { paymentId, workflowUrl } = answer;
    const { messageId } = await eventually("a relay claims the message", async () => {
      const event = await firstEvent(database, paymentId);
      return event?.leased === true ? event : null;
    });
    story.tell({
      step: "recorded",
      text: `payment ${paymentId}  ${workflowUrl ?? ""}`,
      facts: { paymentId, workflowUrl },
    });
    const killed = await inTransaction(
      database,
      async (tx) => await killBehindLock(stage, { tx, broker, messageId }),
    );
    return killed === null ? null : { answer, messageId, killed };
  });
}

/** Answers the killed worker's process id, or null where the mark didn't come or gave up. */
async function killBehindLock(
  stage: Stage,
  { tx, broker, messageId }: { tx: Tx; broker: FrozenProcess; messageId: string },
): Promise<number | null> {
  const { story } = stage;
  const claimed = await lockEvent(tx, messageId);
  if (claimed?.status !== "PENDING" || claimed.leaseUntil === null) return null;
  story.tell({
    step: "claimed",
    text: `message ${messageId} is on its way to SNS; we lock its row, so that it can't be marked`,
    facts: { messageId, leaseUntil: claimed.leaseUntil },
  });
  broker.thaw();
  // The relay marks what SNS has answered for, and nothing else: a waiting mark is the ACK.
  if (!(await within(MARK_MS_MAX, async () => (await countWaiters(tx)) > 0))) return null;
  story.tell({
    step: "accepted",
    text: "kill -CONT: SNS has taken it, and the mark waits for our lock",
    facts: {},
  });
  const booked = await within(BOOKING_MS_MAX, async () => await isBooked(tx, messageId));
  if ((await countWaiters(tx)) === 0) return null;
  const pid = await killWorker(stage);
  const ended = await endWaiters(tx);
  const left = await lockEvent(tx, messageId);
  claim(
    left?.status === "PENDING" && left.brokerMessageId === null,
    "the row doesn't know that SNS has its message",
  );
  story.tell({
    step: "killed",
    text: `kill -9 ${pid}: the worker. ${booked ? "The ledger has booked it, yet" : "SNS has it, yet"} the row is PENDING and has no receipt`,
    facts: { pid, booked, marksEnded: ended },
  });
  return pid;
}

/** The mark waits for a lock for 2 s at most (lock_timeout of the worker's sessions). */
const BOOKING_MS_MAX = 1_000;
const MARK_MS_MAX = 4_000;
const LOOK_MS = 10;

async function within(timeoutMs: number, look: () => Promise<boolean>): Promise<boolean> {
  const endsAt = Date.now() + timeoutMs;
  while (!(await look())) {
    if (Date.now() >= endsAt) return false;
    await delay(LOOK_MS);
  }
  return true;
}

async function tellEvidence(
  stage: Stage,
  { answer, messageId, shopBefore }: Crash & { shopBefore: bigint },
): Promise<void> {
  const { story, database, settings } = stage;
  const { paymentId } = answer;
  const message = await eventually("the message is published and delivered again", async () => {
    const found = (await tracePayment(database, paymentId)).messages.find(
      (one) => one.messageId === messageId,
    );
    return found !== undefined && isSentTwice(found) ? found : null;
  });
  story.tell({
    step: "published",
    text: `again, when the dead worker's lease had ended: SNS message ${message.brokerMessageId ?? "?"}`,
    facts: { messageId, claims: message.claims, brokerMessageId: message.brokerMessageId },
  });
  const { transactions } = await tracePayment(database, paymentId);
  claim(transactions.length === 1, `one ledger transaction, found ${transactions.length}`);
  const { postedMinor } = await accountOf(database, "shop");
  claim(postedMinor - shopBefore === 1_250n, "shop has 12.50 EUR more");
  const { claims, deliveries } = message;
  story.tell({
    step: "result",
    text: `published ${times(claims)}, delivered ${times(deliveries ?? 0)}, booked once, +12.50 EUR`,
    facts: {
      paymentId,
      claims,
      deliveries,
      transactions: 1,
      creditedMinor: postedMinor - shopBefore,
    },
  });
  const told = await storyOf(database, { settings, paymentId });
  story.quote(`remit payment explain ${paymentId}`, storyText(told), { story: told });
}

/** Claimed twice and marked at last, and the ledger's intake counted each delivery. */
function isSentTwice({ status, claims, deliveries }: MessageTrace): boolean {
  return status === "PUBLISHED" && claims >= 2 && (deliveries ?? 0) >= 2;
}
