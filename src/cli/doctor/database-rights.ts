import {
  compareRights,
  disabledGuards,
  forbiddenRights,
  readRole,
} from "../../database/doctor-queries.ts";
import type { RoleAttributes } from "../../database/doctor-queries.ts";
import type { DatabaseContext } from "./database.ts";
import { fail, ok } from "./check.ts";
import type { Check, Finding } from "./check.ts";

/** More than so many are counted. */
const EXAMPLES_MAX = 3;

/** Whether something stands between a bug and the ledger. */
export const RIGHTS_CHECKS: readonly Check<DatabaseContext>[] = [
  {
    name: "database.role",
    about: "the role is neither the owner nor a superuser, and belongs to `remit_app`",
    judge: async ({ session, where }) => judgeRole(await readRole(session), where.role),
  },
  {
    name: "database.rights",
    about: "the role may do what the migrations give to `remit_app`, and nothing more",
    judge: async ({ session, where }) => {
      const forbidden = await forbiddenRights(session);
      if (forbidden.length > 0) {
        return fail(
          `${where.role} may do what no application may: ${some(forbidden)}`,
          `REVOKE it from ${where.role} and remit_app; connect as a role that is a member of remit_app only`,
        );
      }
      const { extra, missing } = await compareRights(session);
      if (missing.length > 0) {
        return fail(`${where.role} may not: ${some(missing)}`, `GRANT remit_app TO ${where.role}`);
      }
      if (extra.length > 0) {
        return fail(
          `${where.role} may more than remit_app: ${some(extra)}`,
          `REVOKE it from ${where.role}`,
        );
      }
      return ok(`${where.role} may what remit_app may`);
    },
  },
  {
    name: "database.guards",
    about: "every trigger fires and every index holds",
    judge: async ({ session, server, where }) => {
      if (server["session_replication_role"] !== "origin") {
        return fail(
          `session_replication_role is ${server["session_replication_role"]}: no trigger fires`,
          `ALTER ROLE ${where.role} RESET session_replication_role (also on the database)`,
        );
      }
      const disabled = await disabledGuards(session);
      if (disabled.length === 0) return ok("all triggers are enabled, all indexes valid");
      return fail(
        some(disabled),
        "as the owner: ALTER TABLE remit.… ENABLE TRIGGER ALL; REINDEX INDEX; then remit verify",
      );
    },
  },
];

function judgeRole(role: RoleAttributes | null, name: string): Finding {
  if (role === null) {
    return fail(
      "the roles remit_owner and remit_app are missing",
      "deploy/roles.sql, then remit migrate up",
    );
  }
  const more = [
    role.isSuperuser ? "a superuser" : "",
    role.isOwner && !role.isSuperuser ? "a member of remit_owner" : "",
    role.bypassesRowSecurity && !role.isSuperuser ? "BYPASSRLS" : "",
    role.mayCreateRoles && !role.isSuperuser ? "CREATEROLE" : "",
    role.mayReplicate && !role.isSuperuser ? "REPLICATION" : "",
  ].filter((what) => what !== "");
  if (more.length > 0) {
    return fail(
      `${name} is ${more.join(", ")}: no guard holds against it`,
      "connect as a role that is a member of remit_app only: DATABASE_URL, deploy/roles.sql",
    );
  }
  if (!role.isApplication)
    return fail(`${name} is no member of remit_app`, `GRANT remit_app TO ${name}`);
  return ok(`${name} is a member of remit_app and nothing more`);
}

function some(names: readonly string[]): string {
  const shown = names.slice(0, EXAMPLES_MAX).join(", ");
  return names.length <= EXAMPLES_MAX ? shown : `${shown} and ${names.length - EXAMPLES_MAX} more`;
}
