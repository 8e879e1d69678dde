import {
  CancellationScope,
  allHandlersFinished,
  condition,
  isCancellation,
  setCurrentDetails,
  setHandler,
  sleep,
} from "@temporalio/workflow";
import { isTerminal } from "../domain/payment.ts";
import type { PartStatus } from "../domain/payment.ts";
import { asksWith, createAcceptance } from "./acceptance.ts";
import { remoteStep } from "./database-step.ts";
import { acceptUpdate, captureEndUpdate } from "./messages.ts";
import type {
  PaymentEnd,
  PaymentInput,
  PaymentReceipt,
  PaymentReference,
  PaymentStanding,
} from "./messages.ts";
import { endOf, standingOf } from "./payment-end.ts";
import { goOnInAnotherRun, isRunFull } from "./full-run.ts";
import { cancelPayment, handleOperations } from "./payment-operations.ts";
import { startPayment } from "./payment-start.ts";

const expirePayment = remoteStep<PaymentReference, PaymentStanding | null>(
  "expirePayment",
  "release what is not captured, if its time is over",
);

const readCapture = remoteStep<{ captureId: string }, PartStatus | null>(
  "readCapture",
  "how the capture stands in PostgreSQL",
);

/** Between two tries to expire where PostgreSQL's clock is behind the one of Temporal. */
const CLOCK_PAUSE = "1 second";
/** A hint of the ledger can be lost with its workflow; a capture normally takes a second. */
const LOOK_AGAIN_MS = 600_000;

/**
 * One payment that is authorized first and captured, voided or expired later; it lives for days. Captures, voids and
 * cancels come as Updates, the expiry is a durable timer, and PostgreSQL decides which came first.
 *
 * Run twice (killed, reset, started again by the supervisor or by a capture) it finds its payment in PostgreSQL and goes
 * on from there; the timer is set by the payment's own `expires_at`.
 */
export async function manualPayment(input: PaymentInput | PaymentReference): Promise<PaymentEnd> {
  const acceptance = createAcceptance(acceptUpdate);
  const decidedCaptures = new Set<string>();
  const messages = new Map<string, string>();
  let hasNews = false;
  let hasEnded = false;
  handleOperations(acceptance, {
    onStanding: () => (hasNews = true),
    // A hint can be sent by hand: of a capture that this run recorded it must name the message.
    onDecision: ({ captureId, messageId }) => {
      hasNews = true;
      if (captureId === undefined) return;
      if ((messages.get(captureId) ?? messageId) === messageId) decidedCaptures.add(captureId);
    },
    onCapture: (captureId, messageId) => messages.set(captureId, messageId),
  });
  setHandler(
    captureEndUpdate,
    async ({ captureId }) => {
      await CancellationScope.nonCancellable(async () => {
        // This run may have begun after the hint: only what is pending is worth a wait.
        if ((await readCapture({ captureId })) !== "pending") return;
        await condition(() => hasEnded || decidedCaptures.has(captureId));
      });
      return null;
    },
    {
      description: "Answers when the ledger has booked or refused this capture",
      validator: asksWith("captureId"),
    },
  );

  const start = await startPayment(input, acceptance);
  if (start.receipt === null) {
    if (start.end.failureCode !== "outcome_unknown") await condition(allHandlersFinished);
    return start.end;
  }
  const { receipt } = start;
  const nextNews: NextNews = async (untilMs, summary) => {
    const arrived = await condition(() => hasNews || isRunFull(), untilMs, { summary });
    hasNews = false;
    if (isRunFull()) await goOnInAnotherRun(receipt);
    return arrived;
  };
  const end = await untilEnd(receipt, nextNews);
  hasEnded = true;
  await CancellationScope.nonCancellable(async () => await condition(allHandlersFinished));
  return endOf(receipt.paymentId, end);
}

/** Whether there was any within the time; the summary names the timer in the Web UI. */
type NextNews = (untilMs: number, summary: string) => Promise<boolean>;

/** A cancel from outside voids what is not captured; what is captured goes on to be settled. */
async function untilEnd(receipt: PaymentReceipt, nextNews: NextNews): Promise<PaymentStanding> {
  try {
    return await follow(receipt, nextNews);
  } catch (error) {
    if (!isCancellation(error)) throw error;
    return await CancellationScope.nonCancellable(async () => {
      await cancelPayment({ paymentId: receipt.paymentId });
      return await follow(receipt, nextNews);
    });
  }
}

async function follow(
  { paymentId, expiresAt }: PaymentReceipt,
  nextNews: NextNews,
): Promise<PaymentStanding> {
  for (;;) {
    const standing = await standingOf(paymentId);
    if (isTerminal(standing.status)) return standing;
    setCurrentDetails(sentence({ paymentId, status: standing.status, expiresAt }));
    if (standing.status !== "authorized" || expiresAt === undefined) {
      await nextNews(LOOK_AGAIN_MS, "look whether the ledger has booked");
      continue;
    }
    const leftMs = Date.parse(expiresAt) - Date.now();
    if (leftMs > 0 && (await nextNews(leftMs, "the authorization expires"))) continue;
    const expired = await expirePayment({ paymentId });
    if (expired?.status === "authorized") await sleep(CLOCK_PAUSE);
  }
}

function sentence({
  paymentId,
  status,
  expiresAt,
}: {
  paymentId: string;
  status: string;
  expiresAt: string | undefined;
}): string {
  return status === "authorized"
    ? `**Authorized** as \`${paymentId}\`: the amount is held until it is captured or voided, or expires at ${expiresAt?.slice(0, 16).replace("T", " ")} UTC.`
    : `**Captured**: payment \`${paymentId}\`, what was captured is on the way to the ledger.`;
}
