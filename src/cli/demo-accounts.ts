import { payLines } from "../client/pay-lines.ts";
import type { LineResult } from "../client/pay-lines.ts";
import type { FileLine } from "../client/file-text.ts";
import type { PaymentClient } from "../client/payment-client.ts";
import type { Settings } from "../config/settings.ts";
import { createAccount } from "../database/account-queries.ts";
import { findPaymentByKey } from "../database/payment-queries.ts";
import { DEFAULT_MERCHANT } from "../domain/ids.ts";
import { withDatabase, withTemporal } from "./context.ts";

/**
 * Creates alice, bob and shop with 1,000.00 EUR each. A call that was cut short is finished by the next one, and after
 * that it finds all of it there and moves nothing; returns whether there was something to do.
 */
export async function seedAccounts(settings: Settings): Promise<boolean> {
  return await withDatabase(settings, async (database) => {
    const unfunded: string[] = [];
    for (const account of SEED_ACCOUNTS) {
      const seed = await findPaymentByKey(database, {
        merchant: DEFAULT_MERCHANT,
        key: `seed-${account.accountId}`,
      });
      if (seed !== null) continue;
      await createAccount(database, { ...account, currency: "EUR", overdraftMinor: 0n });
      unfunded.push(account.accountId);
    }
    if (unfunded.length === 0) return false;
    await withTemporal(settings, async ({ payments }) => {
      await fundAccounts(payments, unfunded);
    });
    return true;
  });
}

const SEED_ACCOUNTS = [
  { accountId: "alice", kind: "customer" },
  { accountId: "bob", kind: "customer" },
  { accountId: "shop", kind: "merchant" },
] as const;

/** By the code that pays a file: it repeats while the worker is still starting. */
async function fundAccounts(client: PaymentClient, accountIds: readonly string[]): Promise<void> {
  const results: LineResult[] = [];
  await payLines({
    lines: seedLines(accountIds),
    client,
    concurrency: accountIds.length,
    onResult: async (result) => {
      results.push(result);
      await Promise.resolve();
    },
  });
  for (const result of results) if ("error" in result) throw result.error;
}

async function* seedLines(accountIds: readonly string[]): AsyncGenerator<FileLine> {
  for (const [index, accountId] of accountIds.entries()) {
    const request = {
      key: `seed-${accountId}`,
      from: "world:EUR",
      to: accountId,
      amount: "1000.00",
      currency: "EUR",
      description: "money to play with",
    };
    yield await Promise.resolve({ line: index + 1, request });
  }
}
