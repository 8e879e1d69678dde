import type { Command } from "commander";
import { payLines } from "../client/pay-lines.ts";
import type { LineResult } from "../client/pay-lines.ts";
import { reportableProblem } from "./problem.ts";
import type { FileLine } from "../client/file-text.ts";
import type { PaymentClient } from "../client/payment-client.ts";
import type { Settings } from "../config/settings.ts";
import { createAccount } from "../database/account-queries.ts";
import { findPaymentByKey } from "../database/payment-queries.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { DEFAULT_MERCHANT } from "../domain/ids.ts";
import { contextOf, withDatabase, withTemporal } from "./context.ts";
import { playPayment, playRedelivery, playRefusal, playReplay, playVerify } from "./demo-steps.ts";
import { addCommand } from "./options.ts";
import { createStory } from "./story.ts";
import type { StoryOutput } from "./story.ts";

/** `remit demo`: one payment with all that may happen to it, on the stack that runs. */
export function registerDemo(program: Command): void {
  addCommand(program, {
    name: "demo",
    about: "play one payment, its repeats and a refusal, and check every claim",
    examples: ["remit demo", "remit demo --json"],
  }).action(async (_options: unknown, command: Command) => {
    const context = contextOf(command);
    const settings = context.settings(["database", "broker"]);
    if (settings.source !== "stack") {
      // It makes money out of nothing (world:EUR) for accounts of its own: no ledger that counts is the place for it.
      throw new DomainError("usage", "the demo plays on the embedded stack alone: npm start");
    }
    await seedAccounts(settings);
    process.exitCode = await playDemo(settings, {
      print: context.output.out,
      json: context.isJson,
    });
  });
}

/**
 * Plays the demo payment and returns the exit code: 0, or 6 where something that it claims doesn't hold.
 * Each run has keys of its own, so it can be played again and again.
 */
export async function playDemo(settings: Settings, io: StoryOutput): Promise<number> {
  const story = createStory(io);
  try {
    await withDatabase(settings, async (database) => {
      await withTemporal(settings, async ({ payments }) => {
        const stage = { settings, database, payments, story, run: `demo-${Date.now()}` };
        const scene = await playPayment(stage);
        await playReplay(stage, scene);
        await playRedelivery(stage, scene);
        await playRefusal(stage);
        await playVerify(stage);
      });
    });
    story.end();
    return 0;
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== "verify") throw error;
    story.break(reportableProblem(error));
    return ERROR_CODES.verify.exit;
  }
}

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
