import { parseArgs } from "node:util";
import { loadEnvironmentSettings } from "../config/process-settings.ts";
import { DomainError, ERROR_CODES } from "../domain/errors.ts";
import { toDomainErrorOrInternal } from "./problem.ts";
import { runPaymentsFile } from "./run-payments-file.ts";

/** The client script, `npm run client -- examples/payments.csv`: needs Temporal and nothing else. */
async function main(): Promise<number> {
  const { values, positionals } = readArguments();
  const [path, ...rest] = positionals;
  if (values.help === true) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  if (path === undefined || rest.length > 0) throw new DomainError("usage", USAGE);
  return await runPaymentsFile({
    path,
    settings: loadEnvironmentSettings({ dataDir: values["data-dir"], needs: [] }),
    ...(values.concurrency === undefined ? {} : { concurrency: concurrencyOf(values.concurrency) }),
    endsAtReceipt: values["end-at-receipt"] === true,
    isJson: values.json === true,
    output: {
      out: (line) => process.stdout.write(`${line}\n`),
      err: (line) => process.stderr.write(`${line}\n`),
    },
  });
}

const USAGE =
  "usage: npm run client -- FILE.csv|FILE.jsonl [--concurrency N] [--end-at-receipt] [--data-dir DIR] [--json]";

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        concurrency: { type: "string" },
        "data-dir": { type: "string" },
        "end-at-receipt": { type: "boolean" },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    });
  } catch (error) {
    throw new DomainError("usage", `${(error as Error).message}; ${USAGE}`, { cause: error });
  }
}

function concurrencyOf(text: string): number {
  const value = /^[0-9]{1,3}$/.test(text) ? Number(text) : 0;
  if (value < 1) throw new DomainError("usage", "--concurrency: expected a number from 1 to 999");
  return value;
}

main().then(
  (exitCode) => {
    process.exitCode = exitCode;
  },
  (thrown: unknown) => {
    const error = toDomainErrorOrInternal(thrown);
    process.stderr.write(`error: ${error.message} (${error.code})\n`);
    process.exitCode = ERROR_CODES[error.code].exit;
  },
);
