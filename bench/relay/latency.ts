import { median, quantile } from "../load.ts";
import type { BenchOptions } from "../options.ts";
import type { Reporter } from "../report.ts";
import { startRelay } from "./running-relay.ts";
import { POLL_INTERVAL_MS } from "./scene.ts";
import type { Scene } from "./scene.ts";

const PER_SECOND = 50;
const SECONDS_A_ROUND = 10;

/** From the writer's commit to the broker's receipt, with the wake-up and with every hint lost. */
export async function measureLatency(
  scene: Scene,
  { rounds }: BenchOptions,
  reporter: Reporter,
): Promise<void> {
  const database = await scene.openDatabase();
  const relay = await startRelay(scene, database);
  try {
    const load = { perSecond: PER_SECOND, seconds: SECONDS_A_ROUND };
    await relay.flow({ ...load, seconds: 3, notifies: true });
    const woken: number[][] = [];
    const deaf: number[][] = [];
    for (let round = 0; round < rounds; round += 1) {
      woken.push(await relay.flow({ ...load, notifies: true }));
      deaf.push(await relay.flow({ ...load, notifies: false }));
    }
    const details = { eventsPerSecond: PER_SECOND, eventsARound: PER_SECOND * SECONDS_A_ROUND };
    reporter.figure({
      name: "relay.commit_to_ack_ms.p50",
      unit: "ms",
      rounds: woken.map(median),
      target: { atMost: 15 },
      details,
    });
    reporter.figure({
      name: "relay.commit_to_ack_ms.p99",
      unit: "ms",
      rounds: woken.map((ms) => quantile(ms, 0.99)),
      target: { atMost: 100 },
      details,
    });
    reporter.figure({
      name: "relay.commit_to_ack_ms.deaf_max_over_poll",
      unit: "ms",
      rounds: deaf.map((ms) => Math.max(...ms) - POLL_INTERVAL_MS),
      target: { atMost: 100 },
      details: { ...details, pollIntervalMs: POLL_INTERVAL_MS },
    });
  } finally {
    await relay.stop();
    await database.close();
  }
}
