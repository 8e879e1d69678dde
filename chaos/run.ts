import { cpSync } from "node:fs";
import { join } from "node:path";
import { createAccount } from "../src/database/account-queries.ts";
import { createDatabase } from "../src/database/database.ts";
import { check, untilQuiet } from "./checks.ts";
import type { Disks } from "./disks.ts";
import { Failpoints } from "./failpoints.ts";
import { Fleet } from "./fleet.ts";
import { CUSTOMERS, MERCHANTS } from "./lane.ts";
import { fundCustomers, startLoad } from "./load.ts";
import type { Load } from "./load.ts";
import { Oracle } from "./oracle.ts";
import { seedOf, seededRandom } from "./random.ts";
import { longestRecovery, settledOf } from "./recovery.ts";
import type { Result } from "./report.ts";
import type { Scenario } from "./scenarios.ts";
import { startChaosStack } from "./stack.ts";
import type { ChaosStack } from "./stack.ts";
import { Traffic } from "./traffic.ts";

/** One whole Remit to be struck at, with what remembers what was asked of it. */
export interface Arena {
  readonly stack: ChaosStack;
  readonly fleet: Fleet;
  readonly traffic: Traffic;
  readonly failpoints: Failpoints;
  readonly oracle: Oracle;
  readonly close: () => Promise<void>;
}

/** A frozen or dead relay costs the rest of its lease: short ones fit more faults into an hour. */
const WORKER_ENV = {
  REMIT_LEASE_MS: "4000",
  REMIT_SEND_TIMEOUT_MS: "1500",
  REMIT_RELAY_SHARDS: "4",
};
const REPLICAS = 2;
/** Clients at a time. */
export const LANES = 12;

export interface ArenaOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly visibilitySeconds: number | null;
  readonly disks: Disks | null;
  readonly logs: string | null;
  readonly log: (line: string) => void;
}

export async function openArena({
  env = {},
  visibilitySeconds,
  disks,
  logs,
  log,
}: ArenaOptions): Promise<Arena> {
  const stack = await startChaosStack({ visibilitySeconds, disks, log: () => undefined });
  const traffic = new Traffic();
  traffic.queuePath = new URL(stack.ledgerQueueUrl).pathname;
  const failpoints = new Failpoints();
  const fleet = new Fleet({
    stack,
    traffic,
    failpoints,
    replicas: REPLICAS,
    env: { ...WORKER_ENV, ...env },
  });
  const oracle = new Oracle(join(stack.directory, "asked.jsonl"));
  const close = async (): Promise<void> => {
    await fleet.stop();
    oracle.close();
    if (logs !== null) cpSync(join(stack.directory, "logs"), logs, { recursive: true });
    await stack.close();
  };
  try {
    await fleet.start();
    await openAccounts(stack);
    const random = seededRandom(1);
    await fundCustomers({ stack, oracle, random, scenario: "funding" });
  } catch (error) {
    await close();
    throw error;
  }
  log(`stack ${stack.directory}: 3 services, ${fleet.workers().length} workers`);
  return { stack, fleet, traffic, failpoints, oracle, close };
}

async function openAccounts({ databaseUrl }: ChaosStack): Promise<void> {
  const database = createDatabase({ url: databaseUrl, poolMax: 2, applicationName: "chaos" });
  const account = { currency: "EUR", overdraftMinor: 0n } as const;
  for (const accountId of CUSTOMERS)
    await createAccount(database, { ...account, accountId, kind: "customer" });
  // Merchants give refunds of what may not have come in yet.
  for (const accountId of MERCHANTS)
    await createAccount(database, { ...account, accountId, kind: "merchant" });
  await database.close();
}

export interface RunOptions {
  readonly seed: number;
  readonly runs: number;
  readonly signal: AbortSignal;
  readonly note: (line: string) => void;
  /** Another load than twelve clients with pauses. */
  readonly load?: () => Promise<Load>;
  /** From the end of the load until everything must have come to an end. */
  readonly quietMs?: number;
  /** Done when all is quiet, and before the checks look. */
  readonly beforeChecks?: (arena: Arena) => Promise<void>;
}

/** From the last kill on: the visibility of a message, a heartbeat, a lease, and what a busy machine adds. */
const QUIET_MS = 150_000;
const ANSWERS_MS = 120_000;
/** The load goes on for so long after the last fault, so that its recovery is seen. */
const AFTERWARDS_MS = 1_500;

/** Plays a scenario while the load runs, lets everything come to its end, and looks at the books. */
export async function runScenario(
  arena: Arena,
  scenario: Scenario,
  options: RunOptions,
): Promise<Result> {
  const { stack, fleet, traffic, failpoints, oracle } = arena;
  const random = seededRandom(seedOf(options.seed, scenario.name));
  const faultsAtMs: number[] = [];
  const duplicatesBefore = traffic.duplicateDeliveries();
  const replacedBefore = fleet.replacementSeconds.length;
  const problems: string[] = [];
  const load = await (options.load?.() ??
    startLoad({
      stack,
      oracle,
      random: seededRandom(options.seed),
      scenario: scenario.name,
      lanes: LANES,
    }));
  try {
    await scenario.play({
      stack,
      fleet,
      traffic,
      failpoints,
      random,
      runs: options.runs,
      signal: options.signal,
      fault: () => faultsAtMs.push(Date.now()),
      note: options.note,
    });
    await new Promise((resolve) => setTimeout(resolve, AFTERWARDS_MS));
  } catch (error) {
    problems.push(
      `the scenario itself failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
    );
  }
  failpoints.disarm();
  const quietMs = options.quietMs ?? QUIET_MS;
  if (!(await load.stop(Math.min(quietMs, ANSWERS_MS))))
    problems.push("not every request got its answer");
  const open = await untilQuiet(stack, quietMs);
  if (open !== null) problems.push(`not at an end after ${quietMs / 1_000} s: ${open}`);
  traffic.calm();
  await fleet.untilWhole();
  await options.beforeChecks?.(arena);
  const findings = await check(stack, { oracle, scenario: scenario.name });
  const recovery = longestRecovery(await settledOf(stack, oracle.of(scenario.name)), faultsAtMs);
  return {
    scenario: scenario.name,
    runs: faultsAtMs.length,
    payments: findings.payments,
    lost: findings.lost,
    doubled: findings.doubled,
    duplicatesAbsorbed: traffic.duplicateDeliveries() - duplicatesBefore,
    recoverySecondsMax:
      Math.round(10 * Math.max(recovery, ...fleet.replacementSeconds.slice(replacedBefore))) / 10,
    seed: options.seed,
    problems: [...problems, ...findings.problems],
  };
}
