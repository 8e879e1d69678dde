import type { Command } from "commander";
import { Option } from "commander";
import {
  changeAccountStatus,
  createAccount,
  getAccount,
  listAccounts,
  listEntries,
} from "../database/account-queries.ts";
import type { AccountView, EntryView } from "../database/account-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { assertAccountId, worldAccountCurrency } from "../domain/ids.ts";
import { assertCurrency, formatMajor, parseAmount } from "../domain/money.ts";
import { contextOf, withDatabase } from "./context.ts";
import { addCommand, addGroup, integerBetween } from "./options.ts";

/** `remit account create|get|list|entries|freeze|unfreeze|close`. */
export function registerAccount(program: Command): void {
  const account = addGroup(
    program,
    "account",
    "create accounts, look at them, freeze and close them",
  );
  registerCreate(account);
  registerGet(account);
  registerList(account);
  registerEntries(account);
  registerStatus(account, {
    name: "freeze",
    status: "frozen",
    about: "accept no new payment from it; what was accepted still books",
  });
  registerStatus(account, {
    name: "unfreeze",
    status: "active",
    about: "accept payments from it again",
  });
  registerStatus(account, {
    name: "close",
    status: "closed",
    about: "close it for ever; it must hold no money",
  });
}

function registerStatus(
  account: Command,
  { name, status, about }: { name: string; status: "active" | "frozen" | "closed"; about: string },
): void {
  addCommand(account, {
    name: `${name} <id>`,
    about,
    examples: [`remit account ${name} alice`],
  }).action(async (id: string, _options: unknown, command: Command) => {
    const context = contextOf(command);
    const { account: view, changed } = await withDatabase(
      context.settings(["database"]),
      async (database) => await changeAccountStatus(database, { accountId: id, status }),
    );
    const again = changed ? "" : " already";
    context.print({
      json: { ...accountDocument(view), changed },
      text: `account ${id} is${again} ${view.status}\n${accountText(view)}`,
    });
  });
}

interface CreateOptions {
  readonly currency: string;
  readonly kind: "customer" | "merchant" | "fee";
  readonly overdraft: string;
}

function registerCreate(account: Command): void {
  addCommand(account, {
    name: "create <id>",
    about: "create an account; a repeat with the same properties changes nothing",
    examples: [
      "remit account create alice --currency EUR",
      "remit account create shop --currency EUR --kind merchant --overdraft 100.00",
    ],
  })
    .requiredOption("--currency <code>", "ISO 4217 code")
    .addOption(
      new Option("--kind <kind>", "a label")
        .choices(["customer", "merchant", "fee"])
        .default("customer"),
    )
    .option("--overdraft <amount>", "how far below zero it may go, in major units", "0")
    .action(async (id: string, options: CreateOptions, command: Command) => {
      assertAccountId(id, "ID");
      assertCurrency(options.currency, "--currency");
      if (worldAccountCurrency(id) !== null) {
        throw new DomainError(
          "account_invalid",
          `${id}: a world account is there at its first use`,
        );
      }
      const context = contextOf(command);
      const { account: view, created } = await withDatabase(
        context.settings(["database"]),
        async (database) =>
          await createAccount(database, {
            accountId: id,
            currency: options.currency,
            kind: options.kind,
            overdraftMinor: parseOverdraft(options),
          }),
      );
      const text = `account ${id} ${created ? "created" : "is there already"}\n${accountText(view)}`;
      context.print({ json: { ...accountDocument(view), created }, text });
    });
}

function parseOverdraft({ overdraft, currency }: CreateOptions): bigint {
  if (/^0(\.0+)?$/.test(overdraft)) return 0n;
  return parseAmount({ amount: overdraft, currency, path: "--overdraft" });
}

function registerGet(account: Command): void {
  addCommand(account, {
    name: "get <id>",
    about: "balances of an account",
    examples: ["remit account get alice --json"],
  }).action(async (id: string, _options: unknown, command: Command) => {
    const context = contextOf(command);
    const view = await withDatabase(
      context.settings(["database"]),
      async (database) => await getAccount(database, id),
    );
    if (view === null) throw accountNotFound(id);
    context.print({ json: accountDocument(view), text: accountText(view) });
  });
}

function registerList(account: Command): void {
  addCommand(account, {
    name: "list",
    about: "all accounts by id",
    examples: ["remit account list --limit 20"],
  })
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 100)
    .action(async ({ limit }: { limit: number }, command: Command) => {
      const context = contextOf(command);
      const views = await withDatabase(
        context.settings(["database"]),
        async (database) => await listAccounts(database, { limit }),
      );
      const text = views.map(accountText).join("\n") || "no accounts";
      context.print({ json: { accounts: views.map(accountDocument) }, text });
    });
}

function registerEntries(account: Command): void {
  addCommand(account, {
    name: "entries <id>",
    about: "the newest ledger entries of an account",
    examples: ["remit account entries alice --limit 10"],
  })
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 100)
    .action(async (id: string, { limit }: { limit: number }, command: Command) => {
      const context = contextOf(command);
      const entries = await withDatabase(context.settings(["database"]), async (database) => {
        if ((await getAccount(database, id)) === null) throw accountNotFound(id);
        return await listEntries(database, id, { limit });
      });
      const text = entries.map(entryText).join("\n") || "no entries";
      context.print({ json: { accountId: id, entries: entries.map(entryDocument) }, text });
    });
}

function accountNotFound(id: string): DomainError {
  return new DomainError("account_not_found", `there is no account ${JSON.stringify(id)}`);
}

function accountDocument(view: AccountView): Record<string, unknown> {
  const { currency } = view;
  return {
    accountId: view.accountId,
    currency,
    kind: view.kind,
    status: view.status,
    postedMinor: view.postedMinor,
    posted: formatMajor(view.postedMinor, currency),
    heldMinor: view.heldMinor,
    held: formatMajor(view.heldMinor, currency),
    availableMinor: view.availableMinor,
    available: formatMajor(view.availableMinor, currency),
    overdraftMinor: view.overdraftMinor,
    overdraft: formatMajor(view.overdraftMinor, currency),
    version: Number(view.version),
    createdAt: view.createdAt,
  };
}

function accountText(view: AccountView): string {
  const major = (amountMinor: bigint): string => formatMajor(amountMinor, view.currency);
  return (
    `${view.accountId} (${view.kind}, ${view.status}): posted ${major(view.postedMinor)}, ` +
    `held ${major(view.heldMinor)}, available ${major(view.availableMinor)} ${view.currency}`
  );
}

function entryDocument(entry: EntryView): Record<string, unknown> {
  return {
    ...entry,
    amount: formatMajor(entry.amountMinor, entry.currency),
    balanceAfter: formatMajor(entry.balanceAfterMinor, entry.currency),
    accountVersion: Number(entry.accountVersion),
  };
}

function entryText(entry: EntryView): string {
  const amount = formatMajor(entry.amountMinor, entry.currency);
  const balance = formatMajor(entry.balanceAfterMinor, entry.currency);
  const at = entry.createdAt.toISOString();
  return `${at} ${entry.direction} ${amount} → ${balance} ${entry.currency}, transaction ${entry.transactionId}`;
}
