import { DomainError } from "../domain/errors.ts";
import type { Database } from "./database.ts";
import { DatabaseError } from "./database-error.ts";

/**
 * A worker runs with the application's rights: with the owner's, no trigger and no grant would stand between a bug and
 * the ledger.
 *
 * @throws DomainError `usage` with what to change
 */
export async function checkDatabase(database: Database): Promise<void> {
  const [row] = await database
    .run<{
      role: string;
      is_superuser: boolean;
      may_post: boolean;
      may_pay: boolean;
      synchronous_commit: string;
    }>(
      {
        name: "check_rights",
        text: `SELECT current_user AS role,
                      (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser,
                      has_column_privilege('remit.accounts', 'posted', 'UPDATE') AS may_post,
                      has_column_privilege('remit.payments', 'id', 'INSERT') AS may_pay,
                      current_setting('synchronous_commit') AS synchronous_commit`,
      },
      [],
    )
    .catch((error: unknown) => {
      if (error instanceof DatabaseError && /^(42P01|3F000)$/.test(error.sqlState)) {
        throw new DomainError("usage", "the database has no schema remit: run remit migrate up");
      }
      throw error;
    });
  if (row === undefined) return;
  if (row.is_superuser || row.may_post) {
    throw new DomainError(
      "usage",
      `role ${row.role} may change balances: connect as a role that is a member of remit_app only`,
    );
  }
  if (row.synchronous_commit === "off") {
    throw new DomainError(
      "usage",
      `synchronous_commit is off, so a crash loses payments that were answered, and a pooler keeps us from turning it on: ` +
        `ALTER ROLE ${row.role} SET synchronous_commit = on`,
    );
  }
  if (!row.may_pay) {
    throw new DomainError(
      "usage",
      `role ${row.role} may not write payments: GRANT remit_app TO it`,
    );
  }
}
