import { runAcceptSuite } from "./accept.ts";
import { runCostSuite } from "./cost.ts";
import { runGrowthSuite } from "./growth.ts";
import { UsageError, readOptions } from "./options.ts";
import { runProcessSuite } from "./process.ts";
import { runProfileSuite } from "./profile.ts";
import { runRelaySuite } from "./relay/suite.ts";
import type { Suite } from "./options.ts";
import { createReporter } from "./report.ts";
import { runVerifySuite } from "./verify.ts";

/**
 * `npm run bench [-- accept|cost|relay|growth|process|profile|verify|all] [--json] [--rounds N]`: Remit against a floor, as ratios from one run; without a
 * word `accept`. docs/benchmarks.md says what each figure is and what it was.
 */
let exitCode = 0;
const told = (error: unknown): string => {
  if (error instanceof UsageError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
};
const fail = (error: unknown): void => {
  exitCode = error instanceof UsageError ? 2 : 1;
  process.stderr.write(`${told(error)}\n`);
};
// A promise that nobody waited for is a figure that nobody should believe.
process.on("unhandledRejection", fail);

try {
  const options = readOptions(process.argv.slice(2));
  const reporter = createReporter(options);
  const isAsked = (suite: Suite): boolean => ["all", suite].includes(options.suite);
  if (isAsked("accept")) await runAcceptSuite(options, reporter);
  if (isAsked("cost")) await runCostSuite(reporter);
  if (isAsked("relay")) await runRelaySuite(options, reporter);
  if (isAsked("growth")) await runGrowthSuite(options, reporter);
  if (isAsked("process")) await runProcessSuite(options, reporter);
  if (isAsked("profile")) await runProfileSuite(reporter);
  if (isAsked("verify")) await runVerifySuite(options, reporter);
} catch (error) {
  fail(error);
}
// All that was started is stopped by now, and yet something may hold the process: a native client's threads, a child's pipe.
process.exit(exitCode);
