import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { createPaymentClient } from "../src/client/payment-client.ts";
import { closeTheBooks, fund, payUntilAnswered } from "./accept.ts";
import { openLoop } from "./load.ts";
import type { BenchOptions } from "./options.ts";
import type { Reporter } from "./report.ts";
import { startBenchStack } from "./stack.ts";
import type { BenchStack } from "./stack.ts";

const REMIT = join(import.meta.dirname, "..", "bin", "remit.mjs");
const READY_MS_MAX = 60_000;
/** Before it, caches fill and code is compiled. */
const WARM_UP_SECONDS = 30;
const LOAD_SECONDS = 150;
const PAYMENTS_A_SECOND = 15;
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
  const pid = stack.processes.find(({ name }) => name === "worker")?.pid ?? 0;
  const { client, close } = await connectTemporal(settings.temporal);
  const samples: Sample[] = [];
  const since = performance.now();
  const sampling = setInterval(() => {
    const seconds = (performance.now() - since) / 1_000;
    if (seconds > WARM_UP_SECONDS) samples.push({ seconds, megabytes: rssOf(pid) });
  }, 500);
  try {
    const payments = createPaymentClient({ client });
    await fund(payments);
    await openLoop(async () => void (await payUntilAnswered(payments)), {
      perSecond: PAYMENTS_A_SECOND,
      count: PAYMENTS_A_SECOND * LOAD_SECONDS,
    });
  } catch (error) {
    // Only Linux tells a process's memory so.
    if (process.platform === "linux") throw error;
    reporter.missing("process.worker_memory_slope", "this system has no /proc");
    return;
  } finally {
    clearInterval(sampling);
    await close();
  }
  const { slope, error } = lineThrough(samples);
  const perThousand = 1_000 / PAYMENTS_A_SECOND;
  reporter.figure({
    name: "process.worker_memory",
    unit: "MB",
    rounds: samples.map(({ megabytes }) => megabytes),
    details: { payments: PAYMENTS_A_SECOND * LOAD_SECONDS },
  });
  reporter.figure({
    name: "process.worker_memory_slope",
    unit: "MB",
    rounds: [slope * perThousand],
    details: { per: "1,000 payments", standardError: error * perThousand },
  });
}

interface Sample {
  readonly seconds: number;
  readonly megabytes: number;
}

function rssOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / KIB_A_MB;
}

/** Least squares: MB a second, and how sure that is. */
function lineThrough(samples: readonly Sample[]): { slope: number; error: number } {
  const mean = (of: (sample: Sample) => number): number =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / samples.length;
  const [x, y] = [mean(({ seconds }) => seconds), mean(({ megabytes }) => megabytes)];
  const spread = mean(({ seconds }) => (seconds - x) ** 2);
  const slope = mean(({ seconds, megabytes }) => (seconds - x) * (megabytes - y)) / spread;
  const rest = mean(({ seconds, megabytes }) => (megabytes - y - slope * (seconds - x)) ** 2);
  return { slope, error: Math.sqrt(rest / spread / samples.length) };
}
