import { setTimeout as delay } from "node:timers/promises";
import { FAILPOINTS, STEPS } from "./failpoints.ts";
import type { Failpoint, Failpoints } from "./failpoints.ts";
import type { Fleet } from "./fleet.ts";
import { pause } from "./pause.ts";
import type { Random } from "./random.ts";
import { SERVICES, killService } from "./stack.ts";
import type { ChaosStack, ServiceName } from "./stack.ts";
import type { Traffic } from "./traffic.ts";

/** What a scenario strikes at, while the load runs. */
export interface Stage {
  readonly stack: ChaosStack;
  readonly fleet: Fleet;
  readonly traffic: Traffic;
  readonly failpoints: Failpoints;
  readonly random: Random;
  /** Faults to bring about. */
  readonly runs: number;
  /** Aborted by Ctrl-C and when the time is over: the fault in hand is the last one. */
  readonly signal: AbortSignal;
  /** Notes that a fault happens now. */
  readonly fault: () => void;
  readonly note: (line: string) => void;
}

export interface Scenario {
  readonly name: string;
  readonly about: string;
  /** Played on a stack whose PostgreSQL lies on small disks. */
  readonly needsDisks?: true;
  readonly play: (stage: Stage) => Promise<void>;
}

/** Up to the so manieth hit: where a process dies shouldn't always be its first time there. */
const HITS_MAX = 3;
const HIT_MS_MAX = 40_000;
const SERVICE_BACK_MS_MAX = 60_000;

export function killScenarios(): Scenario[] {
  const workers = FAILPOINTS.map((failpoint): Scenario => ({
    name: `worker:${failpoint.when}-${failpoint.step}`,
    about: `kill -9 of the ${STEPS[failpoint.step]} worker ${failpoint.when} ${failpoint.step}`,
    play: async (stage) =>
      await strikeAgainAndAgain(stage, failpoint, async (workerName) => {
        await stage.fleet.kill(workerName);
        return "drop";
      }),
  }));
  const services = SERVICES.flatMap((service) =>
    FAILPOINTS.map((failpoint): Scenario => ({
      name: `${service}:${failpoint.when}-${failpoint.step}`,
      about: `kill -9 of ${service} ${failpoint.when} ${failpoint.step}`,
      play: async (stage) => {
        await strikeAgainAndAgain(
          stage,
          failpoint,
          async () => {
            killService(stage.stack, service);
            return await Promise.resolve("pass");
          },
          async () => await untilBack(stage, service),
        );
      },
    })),
  );
  return [...workers, ...services];
}

/** One fault of any kind after the other, as the seed says. */
export function randomScenario(each: readonly Scenario[]): Scenario {
  return {
    name: "random",
    about: "any of the others, one fault at a time, by the seed",
    play: async (stage) => {
      const { random, runs, signal } = stage;
      for (let run = 0; run < runs && !signal.aborted; run += 1) {
        await random.oneOf(each).play({ ...stage, runs: 1 });
      }
    },
  };
}

async function strikeAgainAndAgain(
  stage: Stage,
  failpoint: Failpoint,
  strike: Parameters<Failpoints["arm"]>[1]["strike"],
  recover: () => Promise<void> = async () => await Promise.resolve(),
): Promise<void> {
  const { failpoints, random, runs, signal } = stage;
  for (let run = 0; run < runs && !signal.aborted; run += 1) {
    const nth = random.integer(1, HITS_MAX);
    const struck = failpoints.arm(failpoint, {
      nth,
      strike: async (workerName) => {
        stage.fault();
        return await strike(workerName);
      },
    });
    const isStruck = await Promise.race([
      struck.then(() => true),
      delay(HIT_MS_MAX, false, { signal }).catch(() => false),
    ]);
    if (!isStruck) {
      failpoints.disarm();
      if (!signal.aborted)
        stage.note(
          `${failpoint.when} ${failpoint.step} was not reached in ${HIT_MS_MAX / 1_000} s`,
        );
      continue;
    }
    await recover();
    await pause(random.integer(50, 600), signal);
  }
}

/** The supervisor has another process, and that serves. */
async function untilBack({ stack, signal }: Stage, name: ServiceName): Promise<void> {
  const killed = stack.services[name].current().pid;
  const endsAt = Date.now() + SERVICE_BACK_MS_MAX;
  while (stack.services[name].current().pid === killed && Date.now() < endsAt && !signal.aborted) {
    await delay(50);
  }
}
