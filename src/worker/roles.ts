import { DomainError } from "../domain/errors.ts";

export const ROLES = ["payments", "relay", "ledger"] as const;
export type Role = (typeof ROLES)[number];

/** @throws DomainError `usage` that names the roles */
export function parseRoles(text: string): Role[] {
  const names = text.split(",").map((name) => name.trim());
  const unknown = names.filter((name) => !ROLES.includes(name as Role));
  if (unknown.length > 0 || names.length === 0) {
    throw new DomainError(
      "usage",
      `expected roles out of ${ROLES.join(", ")}, found ${unknown.join(", ")}`,
    );
  }
  return ROLES.filter((role) => names.includes(role));
}
