import { disturbances } from "./disturbances.ts";
import { fullDisks } from "./full-disks.ts";
import { plants } from "./plants.ts";
import type { Plant } from "./plants.ts";
import { killScenarios, randomScenario } from "./scenarios.ts";
import type { Scenario } from "./scenarios.ts";

/** Everything that can strike a stack as it is started otherwise. */
export function faults(): Scenario[] {
  return [...killScenarios(), ...disturbances()];
}

export function allScenarios(): Scenario[] {
  return [...faults(), ...fullDisks(), randomScenario(faults())];
}

/** By name, or by the word before the colon. */
export function scenariosNamed(names: readonly string[]): Scenario[] {
  return names.flatMap((name) => {
    const found = allScenarios().filter(
      (scenario) =>
        name === "all" || scenario.name === name || scenario.name.startsWith(`${name}:`),
    );
    if (found.length === 0) throw new Error(`no scenario ${name}; --list names them all`);
    return found;
  });
}

export function plantsNamed(names: readonly string[]): Plant[] {
  return names.flatMap((name) => {
    const found = plants().filter(
      ({ scenario }) => name === "all" || scenario.name === `plant:${name}`,
    );
    if (found.length === 0) throw new Error(`no planted fault ${name}; --list names them all`);
    return found;
  });
}
