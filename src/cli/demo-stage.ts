import type { Client } from "@temporalio/client";
import type { PaymentClient } from "../client/payment-client.ts";
import type { Settings } from "../config/settings.ts";
import type { StackFile } from "../config/stack-file.ts";
import { getAccount } from "../database/account-queries.ts";
import type { AccountView } from "../database/account-queries.ts";
import type { Database } from "../database/database.ts";
import { verify } from "../database/invariants.ts";
import { DomainError } from "../domain/errors.ts";
import { formatMajor } from "../domain/money.ts";
import type { Undo } from "./demo-undo.ts";
import { claim } from "./story.ts";
import type { Story } from "./story.ts";
import { verifySummary, verifyText } from "./verify.ts";

/** What every scene needs; `run` makes the keys of this run unique. */
export interface Stage {
  readonly settings: Settings;
  readonly database: Database;
  readonly client: Client;
  readonly payments: PaymentClient;
  readonly story: Story;
  readonly run: string;
  /** The stack's processes as they are now: one that was killed has another id soon. */
  readonly processes: () => StackFile["processes"];
  readonly undo: Undo;
}

export const SETTLE_MS_MAX = 60_000;

/** After eighty runs alice's thousand is gone. */
export async function topUp(stage: Stage, neededMinor = 1_250n): Promise<void> {
  const { database, payments, run } = stage;
  const { availableMinor, version } = await accountOf(database, "alice");
  if (availableMinor >= neededMinor) return;
  const answer = await payments.pay({
    key: `${run}-fund-${version}`,
    from: "world:EUR",
    to: "alice",
    amount: "1000.00",
    currency: "EUR",
  });
  await payments.waitForEnd(answer, { timeoutMs: SETTLE_MS_MAX });
}

/** All invariants, as `remit verify` reports them. */
export async function playVerify({ story, database }: Stage): Promise<void> {
  story.scene("remit verify");
  const report = await verify(database, { graceSeconds: 60 });
  claim(report.ok, verifyText(report));
  story.tell({ step: "verified", text: verifySummary(report), facts: { ...report } });
}

/** Both accounts' balances and versions: unequal if anything moved. */
export async function positionOf(database: Database): Promise<string> {
  const views = [await accountOf(database, "alice"), await accountOf(database, "shop")];
  return views
    .map(({ postedMinor, heldMinor, version }) => `${postedMinor}/${heldMinor}/${version}`)
    .join(" ");
}

export async function accountOf(database: Database, accountId: string): Promise<AccountView> {
  const view = await getAccount(database, accountId);
  if (view === null) throw new DomainError("account_not_found", `there is no account ${accountId}`);
  return view;
}

/** `alice: posted 987.50, held 12.50, available 975.00 EUR`. */
export function balanceText(view: AccountView): string {
  const [posted, held, available] = [view.postedMinor, view.heldMinor, view.availableMinor].map(
    (amountMinor) => formatMajor(amountMinor, view.currency),
  );
  return `${view.accountId}: posted ${posted}, held ${held}, available ${available} ${view.currency}`;
}
