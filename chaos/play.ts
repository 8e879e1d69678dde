import { faults } from "./catalogue.ts";
import { openDisks } from "./disks.ts";
import type { Disks } from "./disks.ts";
import { writeFigures, writeSoak } from "./document.ts";
import type { ChaosOptions } from "./options.ts";
import type { Plant } from "./plants.ts";
import type { Reporter, Result } from "./report.ts";
import { openArena, runScenario } from "./run.ts";
import type { Arena } from "./run.ts";
import type { Scenario } from "./scenarios.ts";
import { soak } from "./soak.ts";

/** What is to be played, in this order; a soak, where one is asked for, stands between. */
export interface Program {
  readonly scenarios: readonly Scenario[];
  readonly plants: readonly Plant[];
}

interface Playing {
  readonly options: ChaosOptions;
  readonly reporter: Reporter;
  readonly results: Result[];
  readonly interrupted: AbortSignal;
}

/** Plays all of it on one stack, and what needs disks of its own on another one before. */
export async function play({ scenarios, plants }: Program, playing: Playing): Promise<void> {
  const { options, reporter, interrupted } = playing;
  reporter.note(`seed ${options.seed}`);
  const signal =
    options.minutes === null
      ? interrupted
      : AbortSignal.any([interrupted, AbortSignal.timeout(options.minutes * 60_000)]);
  const stage = { ...playing, interrupted: signal };
  const onDisks = scenarios.filter(({ needsDisks }) => needsDisks);
  const others = scenarios.filter(({ needsDisks }) => !needsDisks);
  if (onDisks.length > 0) {
    await inArena(openDisks(), stage, async (arena) => await playScenarios(arena, onDisks, stage));
  }
  if (signal.aborted || others.length + plants.length + (options.soak === null ? 0 : 1) === 0)
    return;
  await inArena(null, stage, async (arena) => {
    await playScenarios(arena, others, stage);
    await playSoak(arena, stage);
    await playPlants(arena, plants, stage);
  });
}

async function inArena(
  disks: Disks | null,
  { options, reporter }: Playing,
  use: (arena: Arena) => Promise<void>,
): Promise<void> {
  const visibilitySeconds = options.plants.length > 0 ? PLANT_VISIBILITY_SECONDS : null;
  const { logs } = options;
  const arena = await openArena({ visibilitySeconds, disks, logs, log: reporter.note });
  try {
    await use(arena);
  } finally {
    await arena.close();
  }
}

async function playScenarios(
  arena: Arena,
  scenarios: readonly Scenario[],
  { options, reporter, results, interrupted: signal }: Playing,
): Promise<void> {
  const { seed, runs, write } = options;
  for (const scenario of scenarios) {
    if (signal.aborted) return;
    const result = await runScenario(arena, scenario, { seed, runs, signal, note: reporter.note });
    results.push(result);
    reporter.result(result);
    if (write !== null) writeFigures(write, [result]);
  }
}

async function playSoak(
  arena: Arena,
  { options, reporter, results, interrupted: signal }: Playing,
): Promise<void> {
  if (options.soak === null || signal.aborted) return;
  const { seed, write } = options;
  const { note } = reporter;
  const result = await soak(arena, { ...options.soak, seed, faults: faults(), signal, note });
  if (result === null) return;
  results.push(result);
  reporter.result(result);
  if (write !== null && !signal.aborted) writeSoak(write, result);
}

async function playPlants(
  arena: Arena,
  plants: readonly Plant[],
  { options, reporter, results, interrupted: signal }: Playing,
): Promise<void> {
  const { seed, runs } = options;
  for (const { scenario, expects, afterChecks, ...more } of plants) {
    if (signal.aborted) return;
    const run = { seed, runs, signal, note: reporter.note, quietMs: PLANT_QUIET_MS, ...more };
    const result = { ...(await runScenario(arena, scenario, run)), expected: expects };
    results.push(result);
    reporter.result(result);
    await afterChecks?.(arena);
  }
}

/** What was taken by a worker that died comes again after this, and must have come to its end within that. */
const PLANT_VISIBILITY_SECONDS = 5;
const PLANT_QUIET_MS = 9_000;
