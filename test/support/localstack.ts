import { execFile } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { freePort } from "../../src/local/ports.ts";
import { launch } from "../../src/local/processes.ts";
import type { Guard, Log, Service } from "../../src/local/processes.ts";

/** A second, independent SNS/SQS emulator: LocalStack's core (Apache-2.0), from PyPI, in Python 3.10 or 3.11. */
const PACKAGES = [
  "localstack-core[base-runtime]==4.7.0",
  "moto-ext==5.1.6.post2",
  "plux<1.13",
  "cbor2==5.6.5",
  "pyopenssl==24.3.0",
  "cryptography<45",
  "service_identity",
];
const INSTALL_MS_MAX = 600_000;
const START_MS_MAX = 120_000;

export async function startLocalStack({
  cacheDir,
  dir,
  log,
  guard,
}: {
  cacheDir: string;
  /** For its state and its log; it keeps nothing over a restart. */
  dir: string;
  log: Log;
  guard: Guard;
}): Promise<Service & { endpointUrl: string }> {
  const python = await ensureInstalled(cacheDir, log);
  const port = await freePort();
  mkdirSync(dir, { recursive: true });
  const service = await launch({
    name: "localstack",
    command: python,
    args: ["-m", "localstack.runtime.main"],
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: dir,
      SERVICES: "sqs,sns",
      GATEWAY_LISTEN: `127.0.0.1:${port}`,
      DISABLE_EVENTS: "1",
      SKIP_SSL_CERT_DOWNLOAD: "1",
      SQS_ENDPOINT_STRATEGY: "path",
    },
    logFile: join(dir, "localstack.log"),
    guard,
  });
  const endpointUrl = `http://127.0.0.1:${port}`;
  await untilItServes(endpointUrl, service, dir);
  return { ...service, endpointUrl };
}

async function ensureInstalled(cacheDir: string, log: Log): Promise<string> {
  const installed = join(cacheDir, "localstack-4.7.0");
  const python = join(installed, "bin", "python");
  const complete = join(installed, "complete");
  if (existsSync(complete)) return python;
  // Cut short; a virtual environment holds its own path, so it is made where it stays.
  rmSync(installed, { recursive: true, force: true });
  mkdirSync(cacheDir, { recursive: true });
  log("localstack: installed once from PyPI, which takes a minute");
  try {
    await run("python3", ["-m", "venv", installed]);
    await run(python, ["-m", "pip", "install", "-q", "--disable-pip-version-check", ...PACKAGES]);
    writeFileSync(complete, "");
    return python;
  } catch (error) {
    rmSync(installed, { recursive: true, force: true });
    throw error;
  }
}

async function run(command: string, args: readonly string[]): Promise<void> {
  await promisify(execFile)(command, args, { timeout: INSTALL_MS_MAX });
}

async function untilItServes(endpointUrl: string, { exited }: Service, dir: string): Promise<void> {
  let hasEnded = false;
  void exited.then(() => (hasEnded = true));
  const endsAt = Date.now() + START_MS_MAX;
  while (Date.now() < endsAt && !hasEnded) {
    // Its services are loaded at their first call, which takes seconds.
    const calls = ["/_localstack/health", "/?Action=ListTopics", "/?Action=ListQueues"].map(
      async (path) => await fetch(`${endpointUrl}${path}`).catch(() => null),
    );
    const answers = await Promise.all(calls);
    if (answers[0]?.ok === true && answers.every((answer) => answer !== null)) return;
    await delay(500);
  }
  throw new Error(`LocalStack doesn't serve; see ${dir}/localstack.log`);
}
