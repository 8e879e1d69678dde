import { Option } from "commander";
import type { Command } from "commander";
import { acknowledgeFindings, reconcile } from "../activities/reconcile.ts";
import { listFindings, listReconciliations } from "../database/reconciliation-queries.ts";
import type {
  Finding,
  Reconciliation,
  ReconciliationScope,
} from "../database/reconciliation-queries.ts";
import { ERROR_CODES } from "../domain/errors.ts";
import { contextOf, withDatabase } from "./context.ts";
import { operationBy, withOperation } from "./operator.ts";
import { addCommand, addGroup, assertUuids, integerBetween } from "./options.ts";
import { terminalText } from "./terminal-text.ts";

/** `remit reconciliation run|list|findings|acknowledge`: what the looks at the books found, and what people said of it. */
export function registerReconciliation(program: Command): void {
  const group = addGroup(
    program,
    "reconciliation",
    "looks at the books by the clock, and what they found",
  );
  registerRun(group);
  registerList(group);
  registerFindings(group);
  registerAcknowledge(group);
}

function registerRun(group: Command): void {
  addCommand(group, {
    name: "run",
    about: "look now, and keep what is found; a full look also clears what is mended",
    examples: ["remit reconciliation run", "remit reconciliation run --scope recent --json"],
  })
    .addOption(
      new Option("--scope <scope>", "what to look at").choices(["full", "recent"]).default("full"),
    )
    .action(async ({ scope }: { scope: ReconciliationScope }, command: Command) => {
      const context = contextOf(command);
      const summary = await withDatabase(
        context.settings(["database"]),
        async (database) => await reconcile(database, { scope }),
      );
      const { ok, violations, unacknowledged, pendingBeyondGrace } = summary;
      const found = ok ? "all invariants hold" : `BROKEN: ${violations} rows`;
      const lag = pendingBeyondGrace === 0 ? "" : `; ${pendingBeyondGrace} events are late`;
      const open = `${unacknowledged} findings nobody has acknowledged`;
      context.print({ json: summary, text: `${found}${lag}; ${open}` });
      // What is known and acknowledged is no news.
      if (unacknowledged > 0) process.exitCode = ERROR_CODES.verify.exit;
    });
}

function registerList(group: Command): void {
  addCommand(group, {
    name: "list",
    about: "the newest looks, and whether all was right",
    examples: ["remit reconciliation list --limit 5"],
  })
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 20)
    .action(async ({ limit }: { limit: number }, command: Command) => {
      const context = contextOf(command);
      const reconciliations = await withDatabase(
        context.settings(["database"]),
        async (database) => await listReconciliations(database, { limit }),
      );
      const text = reconciliations.map(lookText).join("\n") || "nobody has looked yet";
      context.print({ json: { reconciliations }, text });
    });
}

function registerFindings(group: Command): void {
  addCommand(group, {
    name: "findings",
    about: "the broken rows that stand, acknowledged or not",
    examples: ["remit reconciliation findings", "remit reconciliation findings --all --limit 500"],
  })
    .option("--all", "also those that are over")
    .option("--limit <n>", "at most so many", integerBetween(1, 10_000), 100)
    .action(async ({ all, limit }: { all?: boolean; limit: number }, command: Command) => {
      const context = contextOf(command);
      const findings = await withDatabase(
        context.settings(["database"]),
        async (database) => await listFindings(database, { isAll: all === true, limit }),
      );
      const text = findings.map(findingText).join("\n") || "nothing was found";
      context.print({ json: { findings }, text });
    });
}

function registerAcknowledge(group: Command): void {
  withOperation(
    addCommand(group, {
      name: "acknowledge <ids...>",
      about: "say that a break is known and why it may stand; nothing is corrected by it",
      examples: [
        "remit reconciliation acknowledge 0193a1f2-… --reason 'restored from backup, see incident 12'",
      ],
    }),
  ).action(
    async (ids: string[], options: { reason?: string; dryRun?: boolean }, command: Command) => {
      const context = contextOf(command);
      assertUuids(ids, "findings");
      const input = { findingIds: [...new Set(ids)], ...operationBy(options) };
      const findings = await withDatabase(
        context.settings(["database"]),
        async (database) => await acknowledgeFindings(database, input),
      );
      const { isDryRun } = input;
      const lines = [
        ...(isDryRun ? ["dry run, nothing was changed:"] : []),
        ...findings.map(findingText),
      ];
      context.print({ json: { isDryRun, findings }, text: lines.join("\n") });
    },
  );
}

function lookText({
  scope,
  finishedAt,
  startedAt,
  ok,
  invariants,
  pendingBeyondGrace,
}: Reconciliation): string {
  const seconds = ((finishedAt.getTime() - startedAt.getTime()) / 1_000).toFixed(1);
  const broken = invariants.filter((invariant) => !invariant.ok).map(({ number }) => number);
  const found = ok ? "ok" : `BROKEN: invariant ${broken.join(", ")}`;
  const lag = pendingBeyondGrace === 0 ? "" : `; ${pendingBeyondGrace} events late`;
  return `${finishedAt.toISOString()}  ${scope.padEnd(6)}  ${seconds} s  ${found}${lag}`;
}

function findingText(finding: Finding): string {
  const { findingId, invariant, what, firstSeenAt, clearedAt, acknowledgedBy, reason } = finding;
  const by = `acknowledged by ${acknowledgedBy}: ${terminalText(reason ?? "")}`;
  const said = acknowledgedBy === null ? "" : `  (${by})`;
  const over = clearedAt === null ? "" : `  over since ${clearedAt.toISOString()}`;
  return `${findingId}  ${firstSeenAt.toISOString()}  invariant ${invariant}: ${terminalText(what)}${said}${over}`;
}
