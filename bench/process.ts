import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { createPaymentClient } from "../src/client/payment-client.ts";
import { closeTheBooks, fund, payUntilAnswered } from "./accept.ts";
import { closedLoop } from "./load.ts";
import type { BenchOptions } from "./options.ts";
import type { Reporter } from "./report.ts";
import { startBenchStack } from "./stack.ts";
import type { BenchStack } from "./stack.ts";

const REMIT = join(import.meta.dirname, "..", "bin", "remit.mjs");
const READY_MS_MAX = 60_000;
const IN_FLIGHT = 12;
/** Before that caches fill and code is compiled. */
const WARM_UP_PAYMENTS = 1_000;
const MEASURED_PAYMENTS = 3_000;
const KIB_A_MB = 1_024;

/** How long a worker takes to start, and whether its memory grows with the payments that went through it. */
export async function runProcessSuite({ rounds }: BenchOptions, reporter: Reporter): Promise<void> {
  const stack = await startBenchStack();
  try {
    const started: number[] = [];
    for (let round = 0; round < rounds; round += 1) started.push(await startUpSeconds(stack));
    reporter.figure({ name: "process.worker_start_up", unit: "s", rounds: started });
    await memorySlope(stack, reporter);
    await closeTheBooks(stack.settings.databaseUrl);
  } finally {
    await stack.close();
  }
}

/** From the command to the first poll of every queue, beside a stack that runs. */
async function startUpSeconds({ dataDir }: BenchStack): Promise<number> {
  const since = performance.now();
  const worker = spawn(process.execPath, [REMIT, "worker", "--data-dir", dataDir], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = once(worker, "exit");
  try {
    let log = "";
    worker.stderr.on("data", (text: Buffer) => (log += text.toString()));
    while (!log.includes("worker is ready")) {
      if (worker.exitCode !== null || performance.now() - since > READY_MS_MAX) {
        throw new Error(`remit worker did not start:\n${log}`);
      }
      await delay(10);
    }
    return (performance.now() - since) / 1_000;
  } finally {
    worker.kill("SIGKILL");
    await ended;
  }
}

async function memorySlope({ settings, stack }: BenchStack, reporter: Reporter): Promise<void> {
  if (process.platform !== "linux") {
    reporter.missing("process.worker_memory_slope", "this system has no /proc");
    return;
  }
  const pid = stack.processes.find(({ name }) => name === "worker")?.pid ?? 0;
  const { client, close } = await connectTemporal(settings.temporal);
  const samples: Sample[] = [];
  let settled = 0;
  const sampling = setInterval(() => {
    if (settled > WARM_UP_PAYMENTS) samples.push({ payments: settled, megabytes: rssOf(pid) });
  }, 500);
  try {
    const payments = createPaymentClient({ client });
    await fund(payments);
    const work = async (): Promise<void> => {
      await payments.waitForEnd(await payUntilAnswered(payments), { timeoutMs: 60_000 });
      settled += 1;
    };
    // Not at a rate: above what a machine can do the queue would be measured.
    await closedLoop(work, { inFlight: IN_FLIGHT, count: WARM_UP_PAYMENTS + MEASURED_PAYMENTS });
  } finally {
    clearInterval(sampling);
    await close();
  }
  const { slope, error } = lineThrough(samples);
  reporter.figure({
    name: "process.worker_memory",
    unit: "MB",
    rounds: samples.map(({ megabytes }) => megabytes),
    details: { payments: MEASURED_PAYMENTS },
  });
  reporter.figure({
    name: "process.worker_memory_slope",
    unit: "MB",
    rounds: [1_000 * slope],
    details: { per: "1,000 payments", standardError: 1_000 * error },
  });
}

interface Sample {
  readonly payments: number;
  readonly megabytes: number;
}

function rssOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / KIB_A_MB;
}

/** Least squares: MB a payment, and how sure that is. */
function lineThrough(samples: readonly Sample[]): { slope: number; error: number } {
  const mean = (of: (sample: Sample) => number): number =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / samples.length;
  const [x, y] = [mean(({ payments }) => payments), mean(({ megabytes }) => megabytes)];
  const spread = mean(({ payments }) => (payments - x) ** 2);
  const slope = mean(({ payments, megabytes }) => (payments - x) * (megabytes - y)) / spread;
  const rest = mean(({ payments, megabytes }) => (megabytes - y - slope * (payments - x)) ** 2);
  return { slope, error: Math.sqrt(rest / spread / samples.length) };
}
