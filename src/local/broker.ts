import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { inheritedEnvironment } from "./environment.ts";
import { launch, logOf, settlesWithin } from "./processes.ts";
import { freePort } from "./ports.ts";
import type { Guard, Launched, Service } from "./processes.ts";

export interface Broker extends Service {
  readonly port: number;
  readonly endpointUrl: string;
  readonly region: string;
  readonly accountId: string;
}

export interface BrokerOptions {
  /** Without it the messages live in memory. */
  readonly dir?: string;
  readonly port?: number;
  readonly logFile: string;
  readonly guard?: Guard | undefined;
}

const START_MS_MAX = 30_000;

/**
 * Starts the SNS/SQS emulator on loopback; with `dir` its messages survive a kill. A port may be taken between choice and
 * use: where it ends at once, it is started again.
 */
export async function startBroker(options: BrokerOptions): Promise<Broker> {
  if (options.dir !== undefined) mkdirSync(options.dir, { recursive: true });
  for (let starts = 1; ; starts += 1) {
    const port = options.port ?? (await freePort());
    const launched = await launchBroker(options, port);
    const ready = new Promise((resolve) => launched.child.once("message", resolve));
    const isSettled = await settlesWithin(Promise.race([ready, launched.exited]), START_MS_MAX);
    const hasEnded = launched.child.exitCode !== null || launched.child.signalCode !== null;
    if (isSettled && !hasEnded) {
      const { pid, exited, stop } = launched;
      const endpointUrl = `http://127.0.0.1:${port}`;
      return { pid, exited, stop, port, endpointUrl, ...REGION_AND_ACCOUNT };
    }
    await launched.stop();
    if (!hasEnded || starts === STARTS_MAX) {
      throw new Error(`the broker doesn't serve on port ${port}; ${logOf(options.logFile)}`);
    }
  }
}

const STARTS_MAX = 3;
const REGION_AND_ACCOUNT = { region: "us-east-1", accountId: "000000000000" };

async function launchBroker(
  { dir, logFile, guard }: BrokerOptions,
  port: number,
): Promise<Launched> {
  return await launch({
    name: "broker",
    command: process.execPath,
    args: [
      join(import.meta.dirname, "broker-main.ts"),
      String(port),
      ...(dir === undefined ? [] : [dir]),
    ],
    env: inheritedEnvironment(),
    logFile,
    ipc: true,
    guard,
  });
}
