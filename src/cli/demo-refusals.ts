import type { PaymentRequest } from "../client/parameters.ts";
import type { PaymentClient } from "../client/payment-client.ts";
import { createAccount } from "../database/account-queries.ts";
import type { AccountView } from "../database/account-queries.ts";
import { changeAccountStatus } from "../database/account-queries.ts";
import { findPaymentByKey } from "../database/payment-queries.ts";
import { tracePayment } from "../database/payment-trace.ts";
import { DomainError } from "../domain/errors.ts";
import { DEFAULT_MERCHANT } from "../domain/ids.ts";
import { formatMajor } from "../domain/money.ts";
import { SETTLE_MS_MAX, accountOf, balanceText, positionOf, topUp } from "./demo-stage.ts";
import type { Stage } from "./demo-stage.ts";
import type { PaymentEnd } from "../workflows/messages.ts";
import { pauseRelays, resumeRelays } from "./relay.ts";
import { claim } from "./story.ts";

/** A payment that alice can't afford: refused, and only its key remains. */
export async function playRefusal({ story, payments, database, run }: Stage): Promise<void> {
  const { availableMinor } = await accountOf(database, "alice");
  const request: PaymentRequest = {
    key: `${run}-too-much`,
    from: "alice",
    to: "shop",
    amountMinor: (availableMinor + 1n).toString(),
    currency: "EUR",
  };
  const amount = formatMajor(availableMinor + 1n, "EUR");
  story.scene(`A payment without funds: ${amount} EUR, alice → shop, key ${request.key}`);
  const before = await positionOf(database);
  const first = await refusalOf(payments, request);
  claim(first.code === "insufficient_funds", `it is refused, found ${first.code}`);
  const payment = await findPaymentByKey(database, {
    merchant: DEFAULT_MERCHANT,
    key: request.key,
  });
  claim(payment === null, "there is no payment");
  claim((await positionOf(database)) === before, "no balance has moved and nothing is held");
  story.tell({ step: "refused", text: first.message, facts: { code: first.code } });
  const second = await refusalOf(payments, request);
  claim(second.code === first.code && second.details["replayed"] === true, "its key remembers");
  story.tell({
    step: "remembered",
    text: "the same key gets the same refusal; there is no payment",
    facts: { code: second.code, replayed: true },
  });
}

async function refusalOf(payments: PaymentClient, request: PaymentRequest): Promise<DomainError> {
  try {
    await payments.pay(request);
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
  throw new DomainError(
    "verify",
    "a claim of the demo doesn't hold: it is refused, found accepted",
  );
}

/** The destination closes between the accepting and the booking: the ledger refuses, and the money is free again. */
export async function playClosedAccount(stage: Stage): Promise<void> {
  const { story, database, client, payments, run } = stage;
  await topUp(stage);
  const accountId = run;
  story.scene(`A payment of 12.50 EUR, alice → ${accountId}, an account that closes meanwhile`);
  const account = { accountId, currency: "EUR", kind: "merchant", overdraftMinor: 0n } as const;
  await createAccount(database, account);
  const before = await accountOf(database, "alice");

  const answer = await stage.undo.after(
    async () => void (await resumeRelays(client)),
    async () => {
      await pauseRelays(client, PAUSE_REASON);
      story.tell({ step: "paused", text: "the relay publishes nothing for now", facts: {} });
      const accepted = await payments.pay({
        key: run,
        from: "alice",
        to: accountId,
        amount: "12.50",
        currency: "EUR",
      });
      const { paymentId, workflowUrl } = accepted;
      const held = await accountOf(database, "alice");
      claim(held.heldMinor === before.heldMinor + 1_250n, "12.50 EUR of alice are held");
      story.tell({
        step: "recorded",
        text: `payment ${paymentId}  ${workflowUrl ?? ""}`,
        facts: { paymentId, workflowUrl },
      });
      story.tell({ step: "held", text: balanceText(held), facts: { heldMinor: held.heldMinor } });
      await changeAccountStatus(database, { accountId, status: "closed" });
      story.tell({ step: "closed", text: `account ${accountId} is closed`, facts: { accountId } });
      return accepted;
    },
  );
  story.tell({ step: "resumed", text: "the relay publishes again", facts: {} });
  const end = await payments.waitForEnd(answer, { timeoutMs: SETTLE_MS_MAX });
  await tellRefusal(stage, { paymentId: answer.paymentId, end, before });
}

/** Also the mark by which a later demo knows a pause that this one could not end. */
export const PAUSE_REASON =
  "remit demo closes an account in between; end it with: remit relay resume";

async function tellRefusal(
  { story, database }: Stage,
  { paymentId, end, before }: { paymentId: string; end: PaymentEnd; before: AccountView },
): Promise<void> {
  claim(
    end.status === "failed" && end.failureCode === "account_closed",
    `the payment failed with account_closed, found ${end.status} ${end.failureCode ?? ""}`,
  );
  const { messages, transactions } = await tracePayment(database, paymentId);
  claim(transactions.length === 0, "there is no ledger transaction");
  const refused = messages.find(({ outcome }) => outcome === "refused");
  claim(refused?.error === "account_closed", "the inbox remembers why");
  story.tell({
    step: "refused",
    text: `the ledger books nothing on a closed account: ${refused?.error ?? "?"}, message ${refused?.messageId ?? "?"}`,
    facts: { messageId: refused?.messageId, error: refused?.error },
  });
  const after = await accountOf(database, "alice");
  claim(
    after.postedMinor === before.postedMinor && after.heldMinor === before.heldMinor,
    "alice has all of her money, and none of it is held",
  );
  story.tell({
    step: "failed",
    text: `the payment failed with account_closed, its hold is released. ${balanceText(after)}`,
    facts: { status: end.status, failureCode: end.failureCode, heldMinor: after.heldMinor },
  });
}
