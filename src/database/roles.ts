import { Client } from "pg";
import type { ClientBase } from "pg";
import { databaseError } from "./database-error.ts";

/**
 * remit_owner owns the schema, remit_app runs the application, remit_read only looks, remit_producer lets other programs
 * send events of their own; none of them can log in.
 */
const GROUP_ROLES = ["remit_owner", "remit_app", "remit_read", "remit_producer"] as const;

/** Creates what is missing; two callers at once are harmless (the second meets the first one's role). */
export async function createGroupRoles(client: ClientBase): Promise<void> {
  for (const role of GROUP_ROLES) {
    await client.query(`DO $$ BEGIN
      CREATE ROLE ${role} NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$`);
  }
}

export interface LoginRoleInput {
  readonly adminDatabaseUrl: string;
  readonly role: string;
  readonly password: string;
}

/** A login that may do what remit_app may. A second call sets the password anew. */
export async function createLoginRole({
  adminDatabaseUrl,
  role,
  password,
}: LoginRoleInput): Promise<void> {
  const client = new Client({ connectionString: adminDatabaseUrl });
  try {
    await client.connect();
    const name = client.escapeIdentifier(role);
    const secret = client.escapeLiteral(password);
    await client.query(`DO $$ BEGIN
      CREATE ROLE ${name} LOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END $$`);
    await client.query(`ALTER ROLE ${name} LOGIN PASSWORD ${secret}`);
    await client.query(`GRANT remit_app TO ${name}`);
    const database = await client.query<{ name: string }>("SELECT current_database() AS name");
    await client.query(
      `ALTER ROLE ${name} IN DATABASE ${client.escapeIdentifier(database.rows[0]?.name ?? "")} SET search_path = remit, public`,
    );
  } catch (error) {
    throw databaseError(error);
  } finally {
    await client.end().catch(() => undefined);
  }
}
