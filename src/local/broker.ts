import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { inheritedEnvironment } from "./environment.ts";
import { launch, settlesWithin } from "./processes.ts";
import { freePort } from "./ports.ts";
import type { Guard, Service } from "./processes.ts";

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

/** Starts the SNS/SQS emulator on loopback; with `dir` its messages survive a kill. */
export async function startBroker({ dir, port, logFile, guard }: BrokerOptions): Promise<Broker> {
  if (dir !== undefined) mkdirSync(dir, { recursive: true });
  const chosen = port ?? (await freePort());
  const launched = await launch({
    name: "broker",
    command: process.execPath,
    args: [
      join(import.meta.dirname, "broker-main.ts"),
      String(chosen),
      ...(dir === undefined ? [] : [dir]),
    ],
    env: inheritedEnvironment(),
    logFile,
    ipc: true,
    guard,
  });

  const ready = new Promise((resolve) => launched.child.once("message", resolve));
  const serves = await settlesWithin(Promise.race([ready, launched.exited]), START_MS_MAX);
  if (!serves || launched.child.exitCode !== null || launched.child.signalCode !== null) {
    await launched.stop();
    throw new Error(`the broker doesn't serve on port ${chosen}; see ${logFile}`);
  }
  const { pid, exited, stop } = launched;
  return {
    pid,
    exited,
    stop,
    port: chosen,
    endpointUrl: `http://127.0.0.1:${chosen}`,
    region: "us-east-1",
    accountId: "000000000000",
  };
}
