import type { Command } from "commander";
import { listInbox } from "../database/inbox-queries.ts";
import type { InboxRow } from "../database/inbox-queries.ts";
import { contextOf, withDatabase } from "./context.ts";
import { addCommand, addGroup, integerBetween } from "./options.ts";
import { terminalText } from "./terminal-text.ts";

/** `remit inbox list`. */
export function registerInbox(program: Command): void {
  const inbox = addGroup(program, "inbox", "messages that the ledger has decided");
  addCommand(inbox, {
    name: "list",
    about: "the newest messages of the ledger, booked and refused",
    examples: ["remit inbox list --error --limit 20"],
  })
    .option("--error", "only those that were refused")
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 50)
    .action(async (options: { error?: boolean; limit: number }, command: Command) => {
      const context = contextOf(command);
      const onlyErrors = options.error === true;
      const messages = await withDatabase(
        context.settings(["database"]),
        async (database) => await listInbox(database, { onlyErrors, limit: options.limit }),
      );
      const text = messages.map(rowText).join("\n") || "no such messages";
      context.print({ json: { messages }, text });
    });
}

function rowText({
  messageId,
  type,
  paymentId,
  outcome,
  error,
  deliveries,
  receivedAt,
}: InboxRow): string {
  const times = deliveries === 1 ? "" : `, delivered ${deliveries} times`;
  const what = `${outcome ?? "received"}${error === null ? "" : ` (${error})`}`;
  return `${messageId}  ${receivedAt.toISOString()}  ${terminalText(type)} of ${terminalText(paymentId ?? "unknown")}: ${what}${times}`;
}
