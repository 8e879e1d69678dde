import type { Command } from "commander";
import { toProblem } from "../client/problem.ts";
import { verify } from "../database/invariants.ts";
import type { VerifyReport } from "../database/invariants.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { contextOf, withDatabase } from "./context.ts";
import { addCommand, parseDurationMs } from "./options.ts";

/** `remit verify`: all invariants, one SQL query each. */
export function registerVerify(program: Command): void {
  addCommand(program, {
    name: "verify",
    about: "check that no money was lost or doubled",
    examples: ["remit verify", "remit verify --grace 0s --json"],
  })
    .option(
      "--grace <duration>",
      "how long an event may be on its way (60s)",
      parseDurationMs,
      GRACE_MS,
    )
    .action(async ({ grace }: { grace: number }, command: Command) => {
      const context = contextOf(command);
      const report = await withDatabase(
        context.settings(["database"]),
        async (database) => await verify(database, { graceSeconds: grace / 1_000 }),
      );
      // The one document is the report and, where something is broken, the problem as well.
      const json = report.ok ? report : { ...toProblem(brokenInvariants(report)), ...report };
      context.print({ json, text: verifyText(report) });
      if (!report.ok) process.exitCode = ERROR_CODES.verify.exit;
    });
}

const GRACE_MS = 60_000;

function brokenInvariants({ invariants }: VerifyReport): DomainError {
  const broken = invariants.filter(({ ok }) => !ok).map(({ number }) => number);
  return new DomainError(
    "verify",
    `expected all invariants to hold, found broken: ${broken.join(", ")}`,
  );
}

/** One line an invariant, and a summary. */
export function verifyText(report: VerifyReport): string {
  const lines = report.invariants.map(({ number, name, ok, violations, examples }) =>
    ok
      ? `ok      ${number} ${name}`
      : `BROKEN  ${number} ${name}: ${violations}, such as ${JSON.stringify(examples)}`,
  );
  return [...lines, verifySummary(report)].join("\n");
}

export function verifySummary({ ok, invariants, pendingBeyondGrace }: VerifyReport): string {
  const held = invariants.filter((invariant) => invariant.ok).length;
  const lag = pendingBeyondGrace === 0 ? "" : `; ${pendingBeyondGrace} events are late`;
  return `${ok ? "ok" : "BROKEN"}: ${held} of ${invariants.length} invariants hold${lag}`;
}
