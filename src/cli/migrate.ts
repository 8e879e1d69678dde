import type { Command } from "commander";
import { migrate, migrationStatus } from "../database/migrate.ts";
import { contextOf } from "./context.ts";
import type { CommandContext } from "./context.ts";
import { addCommand, addGroup } from "./options.ts";

/** `remit migrate up|status`. */
export function registerMigrate(program: Command): void {
  const group = addGroup(program, "migrate", "bring the database's schema up to date");
  addCommand(group, {
    name: "up",
    about: "apply what is missing; several at a time wait for each other",
    examples: ["REMIT_ADMIN_DATABASE_URL=postgres://owner:…@db/remit remit migrate up"],
  }).action(async (_options: unknown, command: Command) => {
    const context = contextOf(command);
    const { applied } = await migrate(adminOf(context));
    const text = applied.length === 0 ? "nothing to apply" : `applied ${applied.join(", ")}`;
    context.print({ json: { applied }, text });
  });
  addCommand(group, {
    name: "status",
    about: "what is applied and what is missing",
    examples: ["remit migrate status --json"],
  }).action(async (_options: unknown, command: Command) => {
    const context = contextOf(command);
    const status = await migrationStatus(adminOf(context));
    const text = `applied: ${status.applied.join(", ") || "none"}\nmissing: ${status.pending.join(", ") || "none"}`;
    context.print({ json: status, text });
  });
}

function adminOf(context: CommandContext): { adminDatabaseUrl: string } {
  return { adminDatabaseUrl: context.settings(["database"]).adminDatabaseUrl };
}
