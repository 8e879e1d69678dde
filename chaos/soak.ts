import { quantile } from "../bench/load.ts";
import { drivenLoad, inLanes } from "./load.ts";
import { watchMemory } from "./memory.ts";
import { IN_FLIGHT_MAX, OpenLoop } from "./open-loop.ts";
import { pause } from "./pause.ts";
import { seededRandom } from "./random.ts";
import { settledOf } from "./recovery.ts";
import type { Quantiles, Result } from "./report.ts";
import { LANES, runScenario } from "./run.ts";
import type { Arena } from "./run.ts";
import type { Scenario } from "./scenarios.ts";

export interface SoakOptions {
  readonly seed: number;
  readonly minutes: number;
  /** Share of this machine's capacity that is asked for. */
  readonly load: number;
  /** One of them strikes every minute. */
  readonly faults: readonly Scenario[];
  readonly signal: AbortSignal;
  readonly note: (line: string) => void;
}

const NAME = "soak";
const WARM_UP_MS = 15_000;
const CAPACITY_MS = 60_000;
const MINUTE_MS = 60_000;
/** Within its minute a fault strikes early enough that its recovery falls into the same minute. */
const STRIKE_MS_MIN = 5_000;
const STRIKE_MS_MAX = 25_000;

/**
 * A steady load for as long as is said, a fault every minute, and in the end the checks of every scenario. Null where it was
 * interrupted before the load was known.
 */
export async function soak(arena: Arena, options: SoakOptions): Promise<Result | null> {
  const { seed, minutes, signal, note } = options;
  const capacityPerSecond = await measureCapacity(arena, options);
  if (signal.aborted) return null;
  const perSecond = capacityPerSecond * options.load;
  note(
    `capacity ${capacityPerSecond.toFixed(1)} payments/s; ${perSecond.toFixed(1)}/s for ${minutes} min`,
  );
  const answersMs: number[] = [];
  const openLoop = new OpenLoop(perSecond);
  const played: Played = { minutes: 0, struck: new Map() };
  const memory = watchMemory(arena.fleet);
  const { stack, oracle } = arena;
  const load = async () =>
    await drivenLoad(
      {
        stack,
        oracle,
        random: seededRandom(seed),
        scenario: NAME,
        onAnswer: (ms) => answersMs.push(ms),
      },
      async (lane, stopping) => await openLoop.drive(lane, stopping),
    );
  const scenario = aFaultEveryMinute(options, played);
  const result = await runScenario(arena, scenario, { seed, runs: minutes, signal, note, load });
  const settled = await settledOf(stack, oracle.of(NAME));
  return {
    ...result,
    soak: {
      minutes,
      minutesPlayed: Math.round(10 * played.minutes) / 10,
      load: options.load,
      capacityPerSecond,
      askedPerSecond: perSecond,
      inFlightMax: IN_FLIGHT_MAX,
      heldByInFlightMax: openLoop.held,
      answerMs: quantilesOf(answersMs),
      settledMs: quantilesOf(settled.map(({ askedAtMs, settledAtMs }) => settledAtMs - askedAtMs)),
      faults: Object.fromEntries(
        [...played.struck].toSorted(([left], [right]) => (left < right ? -1 : 1)),
      ),
      memory: memory.end(),
    },
  };
}

/** Payments a second from asking to their end, with every client asking again at once. */
async function measureCapacity(
  { stack, oracle }: Arena,
  { seed, signal, note }: SoakOptions,
): Promise<number> {
  note(`measuring what this machine can do, for ${(WARM_UP_MS + CAPACITY_MS) / 1_000} s`);
  let ended = 0;
  const options = { stack, oracle, random: seededRandom(seed), scenario: "capacity" };
  const load = await drivenLoad(
    options,
    inLanes(LANES, async (lane) => {
      const answer = await lane.askOnce();
      if (answer !== null) await lane.untilEnd(answer);
      ended += 1;
    }),
  );
  await pause(WARM_UP_MS, signal);
  const [endedBefore, since] = [ended, performance.now()];
  await pause(CAPACITY_MS, signal);
  const perSecond = (ended - endedBefore) / ((performance.now() - since) / 1_000);
  await load.stop(CAPACITY_MS);
  if (perSecond > 0 || signal.aborted) return perSecond;
  throw new Error(`no payment came to its end in ${CAPACITY_MS / 1_000} s`);
}

interface Played {
  minutes: number;
  /** Faults by their scenario. */
  readonly struck: Map<string, number>;
}

function aFaultEveryMinute({ faults, minutes }: SoakOptions, played: Played): Scenario {
  return {
    name: NAME,
    about: "a steady load, and one of all faults every minute",
    play: async (stage) => {
      const { random, signal, note } = stage;
      const since = Date.now();
      for (let minute = 0; minute < minutes && !signal.aborted; minute += 1) {
        const { name, play } = random.oneOf(faults);
        const strikesAt = minute * MINUTE_MS + random.integer(STRIKE_MS_MIN, STRIKE_MS_MAX);
        await pause(since + strikesAt - Date.now(), signal);
        if (signal.aborted) break;
        note(`minute ${minute + 1}: ${name}`);
        const fault = (): void => {
          played.struck.set(name, (played.struck.get(name) ?? 0) + 1);
          stage.fault();
        };
        await play({ ...stage, runs: 1, fault });
      }
      await pause(since + minutes * MINUTE_MS - Date.now(), signal);
      played.minutes = (Date.now() - since) / MINUTE_MS;
    },
  };
}

function quantilesOf(ms: readonly number[]): Quantiles {
  const [p50, p99, max] = [0.5, 0.99, 1].map((share) => Math.round(quantile(ms, share)));
  return { p50: p50 ?? Number.NaN, p99: p99 ?? Number.NaN, max: max ?? Number.NaN };
}
