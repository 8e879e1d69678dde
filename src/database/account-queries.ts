import { desc, eq } from "drizzle-orm";
import { DomainError } from "../domain/errors.ts";
import { worldAccountCurrency } from "../domain/ids.ts";
import { query } from "./database.ts";
import type { Database } from "./database.ts";
import { violatedConstraint } from "./database-error.ts";
import { accounts, ledgerEntries } from "./schema.ts";

/** An account as it is now; amounts in minor units. */
export interface AccountView {
  readonly accountId: string;
  readonly currency: string;
  readonly kind: string;
  readonly status: string;
  readonly postedMinor: bigint;
  readonly heldMinor: bigint;
  readonly availableMinor: bigint;
  readonly overdraftMinor: bigint;
  readonly version: bigint;
  readonly createdAt: Date;
}

/** One debit or credit with the balance that it led to. */
export interface EntryView {
  readonly transactionId: string;
  readonly direction: string;
  readonly amountMinor: bigint;
  readonly currency: string;
  readonly balanceAfterMinor: bigint;
  readonly accountVersion: bigint;
  readonly createdAt: Date;
}

export interface NewAccount {
  readonly accountId: string;
  readonly currency: string;
  readonly kind: "customer" | "merchant" | "fee" | "world";
  readonly overdraftMinor: bigint;
}

/**
 * Idempotent by id: a second call with the same properties answers with the account as it is.
 *
 * @throws DomainError `account_exists` where currency, kind or overdraft differ
 */
export async function createAccount(
  database: Database,
  { accountId, currency, kind, overdraftMinor }: NewAccount,
): Promise<{ account: AccountView; created: boolean }> {
  const made = await database.run(
    {
      name: "create_account",
      text: `INSERT INTO remit.accounts (id, kind, currency, overdraft)
             VALUES ($1, $2, $3, $4)
                 ON CONFLICT (id) DO NOTHING
          RETURNING id`,
    },
    [accountId, kind, currency, overdraftMinor],
  );
  const account = await getAccount(database, accountId);
  if (account === null) throw new DomainError("account_not_found", `no account ${accountId}`);
  const differs = [
    ["currency", account.currency, currency],
    ["kind", account.kind, kind],
    ["overdraft", account.overdraftMinor.toString(), overdraftMinor.toString()],
  ].find(([, found, asked]) => found !== asked);
  if (differs !== undefined) {
    throw new DomainError(
      "account_exists",
      `account ${accountId} exists with ${differs[0]} ${differs[1]}, not ${differs[2]}`,
    );
  }
  return { account, created: made.length === 1 };
}

export async function getAccount(
  database: Database,
  accountId: string,
): Promise<AccountView | null> {
  const [row] = await query(() =>
    database.orm.select().from(accounts).where(eq(accounts.id, accountId)),
  );
  return row === undefined ? null : toView(row);
}

/**
 * Freezes, unfreezes or closes an account. A second call changes nothing; a closed account stays closed.
 *
 * @throws DomainError `account_not_found`, `account_closed`, `account_not_empty` where money or a hold is left
 */
export async function changeAccountStatus(
  database: Database,
  { accountId, status }: { accountId: string; status: "active" | "frozen" | "closed" },
): Promise<{ account: AccountView; changed: boolean }> {
  if (status === "closed" && worldAccountCurrency(accountId) !== null) {
    throw new DomainError(
      "account_invalid",
      `${accountId}: money of this currency enters and leaves here, it can't be closed`,
    );
  }
  const changed = await database
    .run(
      {
        name: "change_account_status",
        text: `UPDATE remit.accounts
                  SET status = $2
                WHERE id = $1
                  AND status <> $2
                  AND status <> 'closed'
            RETURNING id`,
      },
      [accountId, status],
    )
    .catch((error: unknown) => {
      if (violatedConstraint(error) !== "accounts_closed_check") throw error;
      throw new DomainError("account_not_empty", `account ${accountId} still has money or holds`);
    });
  const account = await getAccount(database, accountId);
  if (account === null) {
    throw new DomainError("account_not_found", `there is no account ${JSON.stringify(accountId)}`);
  }
  if (account.status === "closed" && status !== "closed") {
    throw new DomainError("account_closed", `account ${accountId} is closed, for ever`);
  }
  return { account, changed: changed.length === 1 };
}

/** In the order of their ids. */
export async function listAccounts(
  database: Database,
  { limit }: { limit: number },
): Promise<AccountView[]> {
  const rows = await query(() =>
    database.orm.select().from(accounts).orderBy(accounts.id).limit(limit),
  );
  return rows.map(toView);
}

/** Newest first; the account's version orders them, not a clock. */
export async function listEntries(
  database: Database,
  accountId: string,
  { limit }: { limit: number },
): Promise<EntryView[]> {
  return await query(() =>
    database.orm
      .select({
        transactionId: ledgerEntries.transactionId,
        direction: ledgerEntries.direction,
        amountMinor: ledgerEntries.amount,
        currency: ledgerEntries.currency,
        balanceAfterMinor: ledgerEntries.balanceAfter,
        accountVersion: ledgerEntries.accountVersion,
        createdAt: ledgerEntries.createdAt,
      })
      .from(ledgerEntries)
      .where(eq(ledgerEntries.accountId, accountId))
      .orderBy(desc(ledgerEntries.accountVersion))
      .limit(limit),
  );
}

function toView(row: typeof accounts.$inferSelect): AccountView {
  return {
    accountId: row.id,
    currency: row.currency,
    kind: row.kind,
    status: row.status,
    postedMinor: row.posted,
    heldMinor: row.held,
    availableMinor: row.posted - row.held + row.overdraft,
    overdraftMinor: row.overdraft,
    version: row.version,
    createdAt: row.createdAt,
  };
}
