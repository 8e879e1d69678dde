import type { Command } from "commander";
import { createPaymentClient } from "../client/payment-client.ts";
import type { PaymentClient, PaymentClientOptions } from "../client/payment-client.ts";
import type { Output } from "../client/run-payments-file.ts";
import { connectTemporal } from "../client/temporal-connection.ts";
import type { TemporalConnection } from "../client/temporal-connection.ts";
import { loadEnvironmentSettings } from "../config/process-settings.ts";
import type { Settings, SettingsPart } from "../config/settings.ts";
import { createDatabase } from "../database/database.ts";
import type { Database } from "../database/database.ts";
import { jsonValue } from "./problem.ts";

/** Writes to this process's two streams. */
export const processOutput: Output = {
  out: (line) => process.stdout.write(`${line}\n`),
  err: (line) => process.stderr.write(`${line}\n`),
};

/** What each command has at hand. */
export interface CommandContext {
  readonly output: Output;
  readonly isJson: boolean;
  readonly settings: (needs: readonly SettingsPart[]) => Settings;
  /** Prints a result in the form that was asked for. */
  readonly print: (result: { json: unknown; text: string }) => void;
}

/** What `--json` and `--data-dir` say, wherever on the line they stand. */
export function contextOf(command: Command): CommandContext {
  const { json, dataDir } = command.optsWithGlobals<{ json?: boolean; dataDir?: string }>();
  const streams = command.configureOutput();
  const output: Output = {
    out: (line) => streams.writeOut?.(`${line}\n`),
    err: (line) => streams.writeErr?.(`${line}\n`),
  };
  const isJson = json === true;
  return {
    output,
    isJson,
    settings: (needs) => loadEnvironmentSettings({ dataDir, needs }),
    print: (result) => {
      output.out(isJson ? JSON.stringify(result.json, jsonValue) : result.text);
    },
  };
}

/** Runs with a database that is closed afterwards, whatever happened. */
export async function withDatabase<Result>(
  settings: Settings,
  work: (database: Database) => Promise<Result>,
): Promise<Result> {
  const database = createDatabase({
    url: settings.databaseUrl,
    poolMax: POOL_MAX,
    applicationName: "remit-cli",
  });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

const POOL_MAX = 4;

/** Runs with a Temporal connection that is closed afterwards, whatever happened. */
export async function withTemporal<Result>(
  settings: Settings,
  work: (connection: TemporalConnection & { payments: PaymentClient }) => Promise<Result>,
  options: Pick<PaymentClientOptions, "isRecorded"> = {},
): Promise<Result> {
  const connection = await connectTemporal(settings.temporal);
  const payments = createPaymentClient({
    client: connection.client,
    uiUrl: settings.temporal.uiUrl,
    traceparent: () => settings.traceparent,
    ...options,
  });
  try {
    return await work({ ...connection, payments });
  } finally {
    await connection.close();
  }
}
