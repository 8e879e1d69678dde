import type { Command } from "commander";
import { outboxStatus } from "../database/outbox-queries.ts";
import { contextOf, withDatabase } from "./context.ts";
import { addCommand, addGroup } from "./options.ts";

/** `remit outbox status`. */
export function registerOutbox(program: Command): void {
  const outbox = addGroup(program, "outbox", "events on their way to the broker");
  addCommand(outbox, {
    name: "status",
    about: "how many events wait, are dead, or were skipped",
    examples: ["remit outbox status --json"],
  }).action(async (_options: unknown, command: Command) => {
    const context = contextOf(command);
    const status = await withDatabase(context.settings(["database"]), outboxStatus);
    const { pending, dead, skipped, oldestPendingAgeSeconds } = status;
    const age =
      oldestPendingAgeSeconds === null ? "" : `, the oldest for ${oldestPendingAgeSeconds} s`;
    context.print({
      json: status,
      text: `${pending} pending${age}; ${dead} dead; ${skipped} skipped`,
    });
  });
}
