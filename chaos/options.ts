import { parseArgs } from "node:util";

export interface ChaosOptions {
  readonly scenarios: readonly string[];
  readonly seed: number;
  /** Faults a scenario. */
  readonly runs: number;
  /** The whole run ends in order after this; null: when all is done. */
  readonly minutes: number | null;
  readonly isJson: boolean;
  readonly isList: boolean;
  /** Faults planted on purpose, each of which must be found. */
  readonly plants: readonly string[];
  /** A report in Markdown is written there. */
  readonly write: string | null;
  /** Null where no soak is asked for. */
  readonly soak: { readonly minutes: number; readonly load: number } | null;
  /** Keeps the logs of all processes there. */
  readonly logs: string | null;
}

const RUNS = 50;
const SOAK_MINUTES = 60;

/** @throws Error with the usage in its message */
export function readOptions(args: readonly string[]): ChaosOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      scenario: { type: "string" },
      seed: { type: "string", default: String(Date.now() % 1_000_000) },
      runs: { type: "string", default: String(RUNS) },
      minutes: { type: "string" },
      json: { type: "boolean", default: false },
      list: { type: "boolean", default: false },
      plant: { type: "string", default: "" },
      write: { type: "string" },
      logs: { type: "string" },
      soak: { type: "boolean", default: false },
      load: { type: "string", default: "0.6" },
    },
  });
  const plants = words(values.plant);
  const minutes = values.minutes === undefined ? null : count("minutes", values.minutes);
  return {
    scenarios: words(values.scenario ?? (plants.length > 0 || values.soak ? "" : "worker")),
    seed: count("seed", values.seed),
    runs: count("runs", values.runs),
    minutes: values.soak ? null : minutes,
    soak: values.soak
      ? { minutes: minutes ?? SOAK_MINUTES, load: share("load", values.load) }
      : null,
    isJson: values.json,
    isList: values.list,
    plants,
    write: values.write ?? null,
    logs: values.logs ?? null,
  };
}

function words(text: string): string[] {
  return text.split(",").filter((word) => word !== "");
}

function count(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw new Error(`--${name} ${text}: a whole number above 0 was expected\n${USAGE}`);
}

function share(name: string, text: string): number {
  const value = Number(text);
  if (value > 0 && value <= 1) return value;
  throw new Error(`--${name} ${text}: a share above 0 and up to 1 was expected\n${USAGE}`);
}

export const USAGE =
  "usage: npm run chaos -- [--scenario NAME,…|worker|postgres|temporal|broker|traffic|all] [--seed N] [--runs N] [--minutes N] " +
  "[--plant NAME,…|all] [--soak [--load SHARE]] [--json] [--list] [--write FILE] [--logs DIR]";
