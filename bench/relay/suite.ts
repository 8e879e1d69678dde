import { availableParallelism, loadavg } from "node:os";
import type { BenchOptions, RelayPart } from "../options.ts";
import type { Reporter } from "../report.ts";
import { measureClaimCost } from "./claim-cost.ts";
import { measureHeldXid } from "./held-xid.ts";
import { measureLatency } from "./latency.ts";
import { startScene } from "./scene.ts";
import type { Scene } from "./scene.ts";
import { measureThroughput } from "./throughput.ts";
import { measureWakeUp } from "./wake-up.ts";

const MEASURE: Record<
  RelayPart,
  (scene: Scene, options: BenchOptions, reporter: Reporter) => Promise<void>
> = {
  throughput: measureThroughput,
  latency: measureLatency,
  claim: measureClaimCost,
  wakeup: measureWakeUp,
  heldxid: measureHeldXid,
};

/**
 * The relay against a floor, against other libraries and against itself in worse conditions. Nobody but PostgreSQL and the
 * emulator runs beside it: no Temporal, no worker.
 */
export async function runRelaySuite(options: BenchOptions, reporter: Reporter): Promise<void> {
  const load = loadavg()[0]?.toFixed(1);
  reporter.note(
    `relay: ${availableParallelism()} CPUs, load ${load} before the run, Node ${process.version}`,
  );
  const scene = await startScene();
  try {
    for (const part of options.parts) await MEASURE[part](scene, options, reporter);
  } finally {
    await scene.close();
  }
}
