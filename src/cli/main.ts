import { runCommandLine } from "./program.ts";

/** The process of the `remit` command; bin/remit.mjs imports it. */

const words = process.argv.slice(2);
const LONG_RUNNING = new Set(["dev", "demo", "worker", "dlq"]);

// These answer SIGINT themselves, in order. All else may stop at once: a payment that was asked for is
// Temporal's by then, and its key makes a repeat safe.
const isLongRunning = words.some((word) => LONG_RUNNING.has(word));
if (!isLongRunning) process.once("SIGINT", () => process.exit(130));

// Whoever reads us (head, a closed pager) may go away first; that is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

process.exitCode = await runCommandLine(words);
