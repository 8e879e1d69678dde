import {
  compareRights,
  disabledGuards,
  forbiddenRights,
  readRole,
} from "../../database/doctor-queries.ts";
import type { Defect, RightsDifference, RoleAttributes } from "../../database/doctor-queries.ts";
import type { DatabaseContext } from "./database.ts";
import { settingFix } from "./setting-fix.ts";
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
          `remit_app may do what no application may: ${whats(forbidden)}`,
          mend(forbidden),
        );
      }
      return judgeDifference(await compareRights(session), where.role);
    },
  },
  {
    name: "database.guards",
    about: "every trigger fires and every index holds",
    judge: async ({ session, server, where }) => {
      const mode = server["session_replication_role"];
      if (mode !== undefined && mode.value !== "origin") {
        return fail(
          `session_replication_role is ${mode.value}: no trigger fires`,
          settingFix(
            { name: "session_replication_role", to: "origin", source: mode.source },
            where,
          ),
        );
      }
      const disabled = await disabledGuards(session);
      if (disabled.length === 0) return ok("all triggers are enabled, all indexes valid");
      return fail(whats(disabled), `${mend(disabled)}; then remit verify`);
    },
  },
];

function judgeRole(role: RoleAttributes | null, name: string): Finding {
  if (role === null) {
    return fail("the roles remit_owner and remit_app are missing", "remit migrate up");
  }
  if (role.isSuperuser) {
    return fail(
      `${name} is a superuser: no guard holds against it`,
      "name a role of the application's own in DATABASE_URL; deploy/roles.sql makes one",
    );
  }
  if (role.isOwner) {
    return fail(
      `${name} is a member of remit_owner: no guard holds against it`,
      `REVOKE remit_owner FROM ${name}`,
    );
  }
  const attributes = [
    role.bypassesRowSecurity ? "BYPASSRLS" : "",
    role.mayCreateRoles ? "CREATEROLE" : "",
    role.mayReplicate ? "REPLICATION" : "",
  ].filter((what) => what !== "");
  if (attributes.length > 0) {
    return fail(
      `${name} has ${attributes.join(", ")}, which no worker needs`,
      `ALTER ROLE ${name} ${attributes.map((what) => `NO${what}`).join(" ")}`,
    );
  }
  if (!role.isApplication) {
    return fail(`${name} is no member of remit_app`, `GRANT remit_app TO ${name}`);
  }
  return ok(`${name} is a member of remit_app and nothing more`);
}

function judgeDifference(
  { extra, missing, otherMemberships }: RightsDifference,
  role: string,
): Finding {
  if (missing.length > 0) {
    return fail(`${role} may not: ${some(missing)}`, `GRANT remit_app TO ${role}`);
  }
  if (extra.length === 0) return ok(`${role} may what remit_app may`);
  const statements = [
    ...otherMemberships.map((group) => `REVOKE ${group} FROM ${role}`),
    `REVOKE ALL ON ALL TABLES IN SCHEMA remit FROM ${role}`,
    `REVOKE ALL ON ALL FUNCTIONS IN SCHEMA remit FROM ${role}`,
  ];
  return fail(`${role} may more than remit_app: ${some(extra)}`, statements.join("; "));
}

function whats(defects: readonly Defect[]): string {
  return some(defects.map(({ what }) => what));
}

/** One grant on a table shows in several of its columns. */
function mend(defects: readonly Defect[]): string {
  return [...new Set(defects.map(({ fix }) => fix))].join("; ");
}

function some(names: readonly string[]): string {
  const shown = names.slice(0, EXAMPLES_MAX).join(", ");
  return names.length <= EXAMPLES_MAX ? shown : `${shown} and ${names.length - EXAMPLES_MAX} more`;
}
