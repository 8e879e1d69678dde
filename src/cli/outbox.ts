import type { Command } from "commander";
import { Option } from "commander";
import { listOutbox, outboxStatus } from "../database/outbox-view-queries.ts";
import type { OutboxRow, OutboxRowStatus } from "../database/outbox-view-queries.ts";
import { contextOf, withDatabase } from "./context.ts";
import { addCommand, addGroup, integerBetween } from "./options.ts";
import { terminalText } from "./terminal-text.ts";
import { registerOutboxOperations } from "./outbox-operations.ts";

/** `remit outbox status|list|retry|skip|republish`. */
export function registerOutbox(program: Command): void {
  const outbox = addGroup(program, "outbox", "events on their way to the broker");
  registerStatus(outbox);
  registerList(outbox);
  registerOutboxOperations(outbox);
}

function registerStatus(outbox: Command): void {
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

interface ListOptions {
  readonly status?: OutboxRowStatus;
  readonly type?: string;
  readonly limit: number;
}

function registerList(outbox: Command): void {
  addCommand(outbox, {
    name: "list",
    about: "the oldest events that wait or are dead; or the newest published or skipped ones",
    examples: ["remit outbox list", "remit outbox list --status DEAD --json"],
  })
    .addOption(
      new Option("--status <status>", "only these (without it: PENDING and DEAD)").choices([
        "PENDING",
        "DEAD",
        "PUBLISHED",
        "SKIPPED",
      ]),
    )
    .option("--type <type>", "only events of this type")
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 50)
    .action(async ({ status, type, limit }: ListOptions, command: Command) => {
      const context = contextOf(command);
      const rows = await withDatabase(
        context.settings(["database"]),
        async (database) =>
          await listOutbox(database, { status: status ?? null, type: type ?? null, limit }),
      );
      const text = rows.map(rowText).join("\n") || "no such events";
      context.print({ json: { messages: rows }, text });
    });
}

function rowText(row: OutboxRow): string {
  const { messageId, status, type, aggregateType, aggregateId, aggregateVersion } = row;
  const notes = [
    row.attempts === 0 ? null : `${row.attempts} attempts failed`,
    row.leaseUntil === null ? null : "in a relay's hand",
    row.nextAttemptAt === null ? null : `next at ${row.nextAttemptAt.toISOString()}`,
    row.brokerMessageId === null ? null : `SNS ${row.brokerMessageId}`,
    row.lastError === null ? null : terminalText(row.lastError),
  ].filter((note) => note !== null);
  const about = `${type}, ${aggregateType} ${aggregateId} v${aggregateVersion}`;
  return `${messageId}  ${status.padEnd(9)} ${about}${notes.length === 0 ? "" : `: ${notes.join("; ")}`}`;
}
