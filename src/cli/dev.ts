import { DEFAULT_DATA_DIR, settingsFromStack } from "../config/settings.ts";
import { INTERRUPTED } from "../local/interruption.ts";
import { withOwnStack } from "../local/own-stack.ts";
import { seedAccounts } from "./demo-accounts.ts";
import { playDemo } from "./demo-play.ts";
import { addCommand } from "./options.ts";
import type { Command } from "commander";
import type { StackFile } from "../config/stack-file.ts";
import type { OwnStack } from "../local/own-stack.ts";
import type { Log } from "../local/processes.ts";

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
  const { dataDir: directory, fresh } = options;
  return await withOwnStack(
    { directory, fresh, print },
    async (own) => await useStack(own, { options, print }),
  );
}

async function useStack(
  { stack, tookMs, interruption }: OwnStack,
  { options, print }: { options: DevOptions; print: Log },
): Promise<number> {
  const play = async (): Promise<number> => {
    const settings = settingsFromStack(stack.file());
    const isNew = await seedAccounts(settings);
    if (!isNew && !options.once) return 0;
    print("");
    // With --once the demo's story is the result; otherwise the stack's addresses are.
    return options.once
      ? await playDemo({ settings, output: { print: printResult, json: options.json } })
      : await playDemo({ settings, output: { print, json: false } });
  };
  const code = await Promise.race([play(), interruption.happened.then(() => INTERRUPTED)]);
  if (options.once || interruption.signal.aborted) return code;

  if (code !== 0) print(`the demo payment ended with exit code ${code}; the stack keeps running`);
  for (const line of bannerLines(stack.file(), { dataDir: options.dataDir, tookMs })) print(line);
  if (options.json) printResult(JSON.stringify(shownStack(stack.file())));
  await interruption.happened;
  return 0;
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

const NAME_WIDTH = 40;

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
