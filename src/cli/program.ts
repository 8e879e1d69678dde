import { Command, CommanderError } from "commander";
import { packageVersion } from "../config/version.ts";
import type { Output } from "../client/run-payments-file.ts";
import { registerAccount } from "./account.ts";
import { registerAws } from "./aws.ts";
import { registerConfig } from "./config.ts";
import { processOutput } from "./context.ts";
import { registerDemo } from "./demo.ts";
import { registerDev } from "./dev.ts";
import { registerDlq } from "./dlq.ts";
import { registerDoctor } from "./doctor.ts";
import { registerInbox } from "./inbox.ts";
import { registerMigrate } from "./migrate.ts";
import { registerOutbox } from "./outbox.ts";
import { registerPay } from "./pay.ts";
import { registerPayment } from "./payment.ts";
import { reportProblem } from "./problem.ts";
import { registerReconciliation } from "./reconciliation.ts";
import { registerRelay } from "./relay.ts";
import { registerVerify } from "./verify.ts";
import { registerWorker } from "./worker.ts";

/** Runs one command line, without the words "node" and "remit", and returns its exit code. */
export async function runCommandLine(
  words: readonly string[],
  output: Output = processOutput,
): Promise<number> {
  const isJson = words.includes("--json");
  try {
    await createProgram(output).parseAsync(words, { from: "user" });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Commander throws for --help and --version, too.
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    return reportProblem(error, { output, isJson });
  }
}

/** The whole `remit` command. */
export function createProgram(output: Output = processOutput): Command {
  const program = new Command("remit")
    .description("Payments that can't be lost or doubled.")
    .version(packageVersion())
    .option("--data-dir <dir>", "the folder of a running stack (.remit)")
    .option("--json", "print data as JSON, and an error as an RFC 9457 document")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => output.out(text.replace(/\n$/, "")),
      writeErr: (text) => output.err(text.replace(/\n$/, "")),
      // A wrong word is reported by us, with its code, like every other refusal.
      outputError: () => undefined,
    })
    .addHelpText("after", "\nStart here:\n  $ npm start\n  $ remit demo");
  for (const register of REGISTERS) register(program);
  return program;
}

const REGISTERS = [
  registerDev,
  registerDemo,
  registerAccount,
  registerPay,
  registerPayment,
  registerOutbox,
  registerRelay,
  registerDlq,
  registerInbox,
  registerVerify,
  registerDoctor,
  registerReconciliation,
  registerMigrate,
  registerAws,
  registerConfig,
  registerWorker,
];
