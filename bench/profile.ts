import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { createPaymentClient } from "../src/client/payment-client.ts";
import type { PaymentClient } from "../src/client/payment-client.ts";
import { closeTheBooks, fund, payUntilAnswered } from "./accept.ts";
import { closedLoop } from "./load.ts";
import { cpuOfTree } from "./relay/cpu.ts";
import type { Reporter } from "./report.ts";
import { startBenchStack } from "./stack.ts";
import type { BenchStack } from "./stack.ts";

const MAIN = join(import.meta.dirname, "..", "src", "cli", "main.ts");
const IN_FLIGHT = 12;
const WARM_UP_PAYMENTS = 200;
const PAYMENTS = 1_500;
const READY_MS_MAX = 60_000;

/**
 * Where the CPU goes: what each process uses for a payment, and what a worker does with its share, by a profile of V8. The
 * profiled worker runs beside the stack's own, so it has about half of the load.
 */
export async function runProfileSuite(reporter: Reporter): Promise<void> {
  if (process.platform !== "linux") {
    reporter.missing("profile.cpu", "this system has no /proc");
    return;
  }
  const stack = await startBenchStack();
  try {
    const { client, close } = await connectTemporal(stack.settings.temporal);
    try {
      await profile(stack, createPaymentClient({ client }), reporter);
    } finally {
      await close();
    }
    await closeTheBooks(stack.settings.databaseUrl);
  } finally {
    await stack.close();
  }
}

async function profile(
  stack: BenchStack,
  payments: PaymentClient,
  reporter: Reporter,
): Promise<void> {
  const directory = join(stack.dataDir, "profiles");
  mkdirSync(directory);
  const worker = spawn(
    process.execPath,
    ["--cpu-prof", `--cpu-prof-dir=${directory}`, MAIN, "worker", "--data-dir", stack.dataDir],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  const ended = once(worker, "exit");
  try {
    await untilReady(worker.stderr);
    await fund(payments);
    await pay(payments, WARM_UP_PAYMENTS);
    const pids = new Map([
      ...stack.stack.processes.map(({ name, pid }) => [name, pid] as const),
      ["profiled worker", worker.pid ?? 0] as const,
      ["client", process.pid] as const,
    ]);
    const before = new Map([...pids].map(([name, pid]) => [name, cpuOfTree(pid) ?? 0]));
    await pay(payments, PAYMENTS);
    const used = new Map(
      [...pids].map(([name, pid]) => [name, (cpuOfTree(pid) ?? 0) - (before.get(name) ?? 0)]),
    );
    // The profiled worker is a child of this process.
    used.set("client", (used.get("client") ?? 0) - (used.get("profiled worker") ?? 0));
    for (const [name, cpuMs] of used) {
      reporter.figure({
        name: `profile.cpu_of_${name.replaceAll(" ", "_")}`,
        unit: "ms",
        rounds: [cpuMs / PAYMENTS],
        details: { per: "payment", payments: PAYMENTS, inFlight: IN_FLIGHT },
      });
    }
    worker.kill("SIGTERM");
    await ended;
  } finally {
    worker.kill("SIGKILL");
  }
  for (const [part, share] of sharesOf(readProfiles(directory))) {
    reporter.figure({
      name: `profile.worker.${part}`,
      unit: "%",
      rounds: [100 * share],
      details: { of: "what V8 ran" },
    });
  }
}

async function pay(payments: PaymentClient, count: number): Promise<void> {
  const work = async (): Promise<void> => {
    await payments.waitForEnd(await payUntilAnswered(payments), { timeoutMs: 60_000 });
  };
  await closedLoop(work, { inFlight: IN_FLIGHT, count });
}

async function untilReady(log: NodeJS.ReadableStream): Promise<void> {
  let said = "";
  log.on("data", (text: Buffer) => (said += text.toString()));
  const endsAt = performance.now() + READY_MS_MAX;
  while (!said.includes("worker is ready")) {
    if (performance.now() > endsAt) throw new Error(`remit worker did not start:\n${said}`);
    await delay(50);
  }
}

/** V8's file: the tree of calls, and which of its nodes ran at each sample. */
interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string };
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** One a thread: the main one, and those that run workflow code. */
function readProfiles(directory: string): CpuProfile[] {
  return readdirSync(directory).map(
    (file) => JSON.parse(readFileSync(join(directory, file), "utf8")) as CpuProfile,
  );
}

/** Self time by who owns the code, the largest share first. */
function sharesOf(profiles: readonly CpuProfile[]): [part: string, share: number][] {
  const microseconds = new Map<string, number>();
  for (const { nodes, samples, timeDeltas } of profiles) {
    const owners = new Map(nodes.map(({ id, callFrame }) => [id, ownerOf(callFrame)]));
    for (const [index, node] of samples.entries()) {
      const owner = owners.get(node) ?? "unknown";
      if (owner === "idle") continue;
      microseconds.set(owner, (microseconds.get(owner) ?? 0) + (timeDeltas[index] ?? 0));
    }
  }
  const all = [...microseconds.values()].reduce((sum, each) => sum + each, 0);
  return [...microseconds]
    .map(([owner, each]): [string, number] => [owner, each / all])
    .toSorted(([, left], [, right]) => right - left);
}

function ownerOf({ functionName, url }: { functionName: string; url: string }): string {
  if (functionName === "(idle)") return "idle";
  if (functionName === "(garbage collector)") return "garbage_collector";
  if (url === "") return "native";
  if (url.startsWith("node:")) return "node";
  const [, packageName] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url) ?? [];
  if (packageName === undefined) return url.includes("/src/") ? "remit" : "workflow_code";
  if (/^@(aws-sdk|smithy|aws-crypto)\//.test(packageName)) return "aws_sdk";
  if (packageName.startsWith("@temporalio/")) return "temporal_sdk";
  return packageName.replaceAll(/[^a-z0-9]+/g, "_");
}
