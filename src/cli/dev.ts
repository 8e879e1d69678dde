import { setTimeout as delay } from "node:timers/promises";
import { DEFAULT_DATA_DIR, settingsFromStack } from "../config/settings.ts";
import { readStackFile } from "../config/stack-file.ts";
import { DomainError } from "../domain/errors.ts";
import { emptyDataDir, lockDataDir, openDataDir } from "../local/data-dir.ts";
import { startStack } from "../local/stack.ts";
import { playDemo, seedAccounts } from "./demo.ts";
import { addCommand } from "./options.ts";
import type { Command } from "commander";
import type { StackFile } from "../config/stack-file.ts";
import type { DataDir } from "../local/data-dir.ts";
import type { Log } from "../local/processes.ts";
import type { Stack } from "../local/stack.ts";

interface DevOptions {
  readonly dataDir: string;
  readonly fresh: boolean;
  readonly once: boolean;
  readonly json: boolean;
}

/** `remit dev`: the whole stack in the foreground. */
export function registerDev(program: Command): void {
  addCommand(program, {
    name: "dev",
    about: "start PostgreSQL, Temporal, SNS/SQS and a worker here, and keep them running",
    examples: [
      "remit dev                     everything under .remit/, until Ctrl-C",
      "remit dev --once              start, play the demo payment, stop",
      "remit dev --fresh             forget what was there",
      "remit dev --data-dir /tmp/a   a second, independent stack",
    ],
  })
    .option("--data-dir <dir>", "where everything is kept (.remit)")
    .option("--fresh", "empty the folder first", false)
    .option("--once", "start, play the demo payment, stop", false)
    .action(async (_options: unknown, command: Command) => {
      // The program has --data-dir and --json as well, and takes them wherever on the line they stand.
      const given = command.optsWithGlobals<Partial<DevOptions>>();
      const code = await runDev({
        dataDir: given.dataDir ?? DEFAULT_DATA_DIR,
        fresh: given.fresh === true,
        once: given.once === true,
        json: given.json === true,
      });
      // What was under way when the signal came still waits for servers that are gone.
      if (code === INTERRUPTED) process.exit(code);
      process.exitCode = code;
    });
}

async function runDev(options: DevOptions): Promise<number> {
  const print = options.json ? printForPeople : printResult;
  const dataDir = openDataDir(options.dataDir);
  const lock = lockDataDir(dataDir);
  if (lock === null) throw alreadyRunning(dataDir);

  const interruption = interruptions();
  try {
    if (options.fresh) emptyDataDir(dataDir);
    const started = await startUnlessInterrupted({ dataDir, print, interruption });
    if (started === null) return INTERRUPTED;

    try {
      return await useStack(started, { options, print, interruption });
    } finally {
      print("\nstopping: worker, broker, temporal, postgres");
      await started.stack.stop();
      print("stopped");
    }
  } finally {
    lock.release();
    interruption.dispose();
  }
}

interface Interruption {
  readonly signal: AbortSignal;
  readonly happened: Promise<void>;
  readonly dispose: () => void;
}

interface Started {
  readonly stack: Stack;
  readonly tookMs: number;
}

const INTERRUPTED = 130;

async function startUnlessInterrupted({
  dataDir,
  print,
  interruption: { signal, happened },
}: {
  dataDir: DataDir;
  print: Log;
  interruption: Interruption;
}): Promise<Started | null> {
  print(`remit dev · ${dataDir.path}`);
  const onStep = (name: string, tookMs: number): void =>
    print(`  ✓ ${name.padEnd(NAME_WIDTH)} ${seconds(tookMs)}`);
  const since = performance.now();
  const starting = startStack({ dataDir, env: process.env, log: print, onStep, signal });
  try {
    const stack = await Promise.race([
      starting,
      happened.then(async () => await delay(ABORT_MS_MAX)),
    ]);
    // A download can't be aborted; the guard ends the servers as soon as this process is gone.
    if (stack === undefined) process.exit(INTERRUPTED);
    return { stack, tookMs: performance.now() - since };
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  }
}

const ABORT_MS_MAX = 20_000;
const NAME_WIDTH = 40;

async function useStack(
  { stack, tookMs }: Started,
  { options, print, interruption }: { options: DevOptions; print: Log; interruption: Interruption },
): Promise<number> {
  const play = async (): Promise<number> => {
    const settings = settingsFromStack(stack.file());
    const isNew = await seedAccounts(settings);
    if (!isNew && !options.once) return 0;
    print("");
    // With --once the demo's story is the result; otherwise the stack's addresses are.
    return options.once
      ? await playDemo(settings, { print: printResult, json: options.json })
      : await playDemo(settings, { print, json: false });
  };
  const code = await Promise.race([play(), interruption.happened.then(() => INTERRUPTED)]);
  if (options.once || interruption.signal.aborted) return code;

  if (code !== 0) print(`the demo payment ended with exit code ${code}; the stack keeps running`);
  for (const line of bannerLines(stack.file(), { dataDir: options.dataDir, tookMs })) print(line);
  if (options.json) printResult(JSON.stringify(shownStack(stack.file())));
  await interruption.happened;
  return 0;
}

/** The first signal asks for an orderly end; another one, from a person who is tired of waiting, ends at once. */
function interruptions(): Interruption {
  const controller = new AbortController();
  const happened = new Promise<void>((resolve) => {
    controller.signal.addEventListener("abort", () => resolve());
  });
  let firstAt = 0;
  const listener = (): void => {
    if (!controller.signal.aborted) {
      firstAt = Date.now();
      controller.abort(new Error("interrupted"));
      return;
    }
    // npm, the shim and the terminal may each pass on the same Ctrl-C. The guard ends what this leaves.
    if (Date.now() - firstAt > SAME_SIGNAL_MS) process.exit(INTERRUPTED);
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, listener);
  return {
    signal: controller.signal,
    happened,
    dispose: () => {
      for (const signal of signals) process.off(signal, listener);
    },
  };
}

const SAME_SIGNAL_MS = 1_500;

function alreadyRunning({ path, stackFile }: DataDir): DomainError {
  const stack = readStackFile(stackFile);
  const where =
    stack === null
      ? "it is just starting or stopping"
      : `process ${stack.pid}, Web UI ${stack.temporalUiUrl}`;
  return new DomainError(
    "already_running",
    `remit dev runs already in ${path}: ${where}; use that one, stop it, or choose another --data-dir`,
    { details: stack === null ? {} : { pid: stack.pid, temporalUiUrl: stack.temporalUiUrl } },
  );
}

function bannerLines(
  stack: StackFile,
  { dataDir, tookMs }: { dataDir: string; tookMs: number },
): string[] {
  const pidOf = (name: string): string =>
    `pid ${stack.processes.find((entry) => entry.name === name)?.pid ?? "?"}`;
  const row = (name: string, address: string, pid: string): string =>
    `  ${name.padEnd(10)} ${address.padEnd(NAME_WIDTH)} ${pid}`.trimEnd();
  const remit = `npx remit${dataDir === DEFAULT_DATA_DIR ? "" : ` --data-dir ${dataDir}`}`;
  return [
    "",
    `Remit is running (${seconds(tookMs)})`,
    row("remit dev", `everything under ${dataDir}/`, `pid ${stack.pid}`),
    row("postgres", withoutPassword(stack.databaseUrl), pidOf("postgres")),
    row("temporal", stack.temporalAddress, pidOf("temporal")),
    row("  Web UI", stack.temporalUiUrl, ""),
    row("broker", stack.awsEndpointUrl, pidOf("broker")),
    row("worker", "payments, relay, ledger", pidOf("worker")),
    "",
    "Next, in another terminal:",
    `  ${remit} pay --from alice --to shop --amount 12.50 --currency EUR --key order-1 --wait`,
    `  ${remit} account list`,
    `  ${remit} payment list`,
    `  ${remit} verify`,
    "",
    `kill -9 any of these, then ${remit} verify`,
    "Ctrl-C stops everything in order.",
  ];
}

/** What stack.json says, without what only its owner may read. */
function shownStack({ adminDatabaseUrl: _secret, ...stack }: StackFile): object {
  return { ...stack, databaseUrl: withoutPassword(stack.databaseUrl) };
}

// A terminal is often shared or recorded.
function withoutPassword(databaseUrl: string): string {
  const url = new URL(databaseUrl);
  url.password = "";
  return url.href;
}

function seconds(milliseconds: number): string {
  return `${(milliseconds / 1_000).toFixed(1)} s`;
}

function printResult(line: string): void {
  process.stdout.write(`${line}\n`);
}

function printForPeople(line: string): void {
  process.stderr.write(`${line}\n`);
}
