import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { migrate } from "../src/database/migrate.ts";
import { startBroker } from "../src/local/broker.ts";
import { startGuard } from "../src/local/guard.ts";
import { createDatabase, startPostgres } from "../src/local/postgres.ts";
import { defaultCacheDir, ensureTemporalBinary } from "../src/local/temporal-binary.ts";
import { startTemporal } from "../src/local/temporal.ts";
import type { Log, Service } from "../src/local/processes.ts";
import { startLocalStack } from "./support/localstack.ts";
import type { TestServices } from "./support/services.ts";

/**
 * `npm test [-- <jest argument>…]`: starts the real services once, runs jest, ends everything, counts in the last line.
 * `test/browser` and `test/alerts` are run only when they are named, since they need a Chromium and a Prometheus.
 */

const REPOSITORY_DIR = join(import.meta.dirname, "..");
const TEMPLATE = "remit_template";
const directory = mkdtempSync(join(tmpdir(), "remit-test-"));
const guard = startGuard({
  recordsDir: join(directory, "processes"),
  removeDirAtDeath: directory,
});
const services: Service[] = [];
const interruption = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => interruption.abort(signal));
}

process.exitCode = await runTests(process.argv.slice(2));

async function runTests(args: readonly string[]): Promise<number> {
  try {
    const env = needsServices(args) ? await startServices() : {};
    interruption.signal.throwIfAborted();
    const code = await runJest(args, env);
    process.stdout.write(`${countsLine()}\n`);
    return code;
  } catch (error) {
    if (interruption.signal.aborted) return INTERRUPTED;
    throw error;
  } finally {
    await Promise.all(services.map(async ({ stop }) => await stop()));
    await guard.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

const INTERRUPTED = 130;

// Unit tests alone take a second, the services several; the browser's test starts a whole stack of its own.
function needsServices(args: readonly string[]): boolean {
  const paths = args.filter((argument) => !argument.startsWith("-"));
  return (
    paths.length === 0 || paths.some((path) => !/^(\.\/)?test\/(unit|browser)(\/|$)/.test(path))
  );
}

// Last on the line: jest takes every word after it for one more pattern.
function leftOut(args: readonly string[]): string[] {
  const folders = ["browser", "alerts"].filter(
    (folder) => !args.some((argument) => argument.includes(folder)),
  );
  if (folders.length === 0) return [];
  return ["--testPathIgnorePatterns", ...folders.map((folder) => `/test/${folder}/`)];
}

async function startServices(): Promise<TestServices> {
  const since = performance.now();
  const log = (line: string): void => void process.stderr.write(`${line}\n`);
  const started = await Promise.allSettled([
    startDatabase(),
    startMessaging(log),
    startWorkflows(log),
  ]);
  const failure = started.find((result) => result.status === "rejected");
  if (failure !== undefined) throw failure.reason;

  log(`services started in ${((performance.now() - since) / 1_000).toFixed(1)} s`);
  return Object.assign({}, ...started.map((result) => "value" in result && result.value));
}

async function startDatabase(): Promise<Partial<TestServices>> {
  const postgres = await startPostgres({
    dir: join(directory, "postgres"),
    password: "test",
    logFile: join(directory, "postgres.log"),
    // The folder doesn't outlive the run, so nothing needs to reach the disk.
    settings: {
      fsync: "off",
      synchronous_commit: "off",
      full_page_writes: "off",
      max_connections: "200",
    },
    guard,
  });
  services.push(postgres);
  const { adminDatabaseUrl } = postgres;
  await migrate({ adminDatabaseUrl: await createDatabase(adminDatabaseUrl, TEMPLATE) });
  return { REMIT_TEST_ADMIN_DATABASE_URL: adminDatabaseUrl, REMIT_TEST_TEMPLATE: TEMPLATE };
}

/** `REMIT_TEST_BROKER=localstack` takes the second emulator: what holds with both isn't a trait of one. */
async function startMessaging(log: Log): Promise<Partial<TestServices>> {
  if (process.env["REMIT_TEST_BROKER"] === "localstack") {
    const cacheDir = defaultCacheDir(process.env, REPOSITORY_DIR);
    const second = await startLocalStack({
      cacheDir,
      dir: join(directory, "localstack"),
      log,
      guard,
    });
    services.push(second);
    return { REMIT_TEST_AWS_ENDPOINT_URL: second.endpointUrl };
  }
  const broker = await startBroker({ logFile: join(directory, "broker.log"), guard });
  services.push(broker);
  return { REMIT_TEST_AWS_ENDPOINT_URL: broker.endpointUrl };
}

async function startWorkflows(log: (line: string) => void): Promise<Partial<TestServices>> {
  const cacheDir = defaultCacheDir(process.env, REPOSITORY_DIR);
  const binary = await ensureTemporalBinary({ cacheDir, log });
  const temporal = await startTemporal({
    binary,
    logFile: join(directory, "temporal.log"),
    guard,
    // A run is full after 100 Updates instead of 1,800, so that a test can fill one.
    dynamicConfig: ["history.maxTotalUpdates.suggestContinueAsNewThreshold=0.05"],
  });
  services.push(temporal);
  return {
    REMIT_TEST_TEMPORAL_ADDRESS: temporal.address,
    REMIT_TEST_TEMPORAL_BINARY: binary,
  };
}

async function runJest(args: readonly string[], env: Partial<TestServices>): Promise<number> {
  const jest = join(REPOSITORY_DIR, "node_modules", "jest", "bin", "jest.js");
  const report = ["--json", `--outputFile=${resultFile()}`];
  const child = spawn(process.execPath, [jest, ...report, ...args, ...leftOut(args)], {
    cwd: REPOSITORY_DIR,
    env: { ...inheritedEnvironment(), ...env },
    // With --json jest prints the document on stdout as well; people read what it says on stderr.
    stdio: ["inherit", "ignore", "inherit"],
  });
  interruption.signal.addEventListener("abort", () => child.kill("SIGTERM"));
  guard.add({ name: "jest", pid: child.pid ?? 0, signal: "SIGKILL" });
  return await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => {
      guard.remove(child.pid ?? 0);
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
    });
  });
}

// A test sees the services that were started here and nothing of the caller's, but what it is told to write, and how much to try.
function inheritedEnvironment(): NodeJS.ProcessEnv {
  const foreign =
    /^(NODE_OPTIONS|NODE_CHANNEL_.*|DATABASE_URL|(TEMPORAL|AWS|REMIT(?!_(UPDATE_DOCS|UPDATE_HISTORIES|TEST_SEED|TEST_POOL_MAX|TEST_OUTAGE_MS|MODEL_RUNS|MODEL_FLOW_RUNS|MODEL_SEED|FUZZ_RUNS|FUZZ_SEED)$)|PG)_?.*)$/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !foreign.test(name)));
}

function resultFile(): string {
  return join(directory, "jest.json");
}

function countsLine(): string {
  try {
    const { numPassedTests, numFailedTests, numRuntimeErrorTestSuites } = JSON.parse(
      readFileSync(resultFile(), "utf8"),
    ) as Record<string, number>;
    // A file that can't be loaded has no tests that could fail.
    return `${numPassedTests} passed, ${(numFailedTests ?? 0) + (numRuntimeErrorTestSuites ?? 0)} failed`;
  } catch {
    return "0 passed, 1 failed";
  }
}
