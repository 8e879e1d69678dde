import { DomainError } from "../domain/errors.ts";
import { jsonValue } from "./problem.ts";

/** Where a story goes: text as it happens, or one JSON document at its end. */
export interface StoryOutput {
  readonly print: (line: string) => void;
  readonly json: boolean;
}

/** What happened at one step, when, and what a machine may want to know of it. */
export interface StoryEvent {
  readonly step: string;
  /** Since the start of the scene. */
  readonly atMs: number;
  readonly text: string;
  readonly facts: Readonly<Record<string, unknown>>;
}

/** Tells what happens and keeps it honest. */
export interface Story {
  /** Begins a scenario; all scenes up to the next one belong to it. */
  readonly chapter: (name: string, about: string) => void;
  /** Begins a scene, whose clock starts now. */
  readonly scene: (title: string) => void;
  readonly tell: (event: Omit<StoryEvent, "atMs"> & { atMs?: number }) => void;
  /** Shows what a command says, whole. */
  readonly quote: (command: string, text: string, facts: Record<string, unknown>) => void;
  readonly elapsedMs: () => number;
  readonly end: () => void;
  /** Ends it where a claim didn't hold. */
  readonly break: (problem: { text: string; json: unknown }) => void;
}

export function createStory({ print, json }: StoryOutput): Story {
  const events: (StoryEvent & { scenario: string | null; scene: string })[] = [];
  let scenario: string | null = null;
  let title = "";
  let isFirstLine = true;
  let startedAt = performance.now();
  const elapsedMs = (): number => Math.round(performance.now() - startedAt);
  const finish = (ok: boolean, extra: Record<string, unknown>): void => {
    if (json) print(JSON.stringify({ ok, events, ...extra }, jsonValue));
  };
  const heading = (text: string): void => {
    if (!json) print(`${isFirstLine ? "" : "\n"}${text}`);
    isFirstLine = false;
  };
  return {
    elapsedMs,
    chapter(name, about) {
      scenario = name;
      heading(`── ${name}: ${about} ──`);
    },
    scene(next) {
      title = next;
      startedAt = performance.now();
      heading(next);
    },
    tell({ step, text, facts, atMs = elapsedMs() }) {
      events.push({ scenario, scene: title, step, atMs, text, facts });
      if (!json) print(`  ${`${atMs} ms`.padStart(8)}  ${step.padEnd(10)} ${text}`);
    },
    quote(command, text, facts) {
      events.push({ scenario, scene: title, step: "quoted", atMs: elapsedMs(), text, facts });
      heading(`$ ${command}`);
      if (!json) for (const line of text.split("\n")) print(line === "" ? "" : `  ${line}`);
    },
    end() {
      finish(true, {});
    },
    break(problem) {
      if (!json) print(problem.text);
      finish(false, { problem: problem.json });
    },
  };
}

/** @throws DomainError `verify` where what the story says isn't so */
export function claim(holds: boolean, text: string): void {
  if (!holds) throw new DomainError("verify", `a claim of the demo doesn't hold: ${text}`);
}

/**
 * Looks again and again until there is something to see.
 * @throws DomainError `verify` where there is nothing within the bound
 */
export async function eventually<Result>(
  what: string,
  look: () => Promise<Result | null | undefined>,
): Promise<Result> {
  const endsAt = Date.now() + EVENTUALLY_MS_MAX;
  for (;;) {
    const seen = await look();
    if (seen !== null && seen !== undefined) return seen;
    if (Date.now() >= endsAt) {
      throw new DomainError(
        "verify",
        `a claim of the demo doesn't hold: ${what} within ${EVENTUALLY_MS_MAX / 1_000} s`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_INTERVAL_MS));
  }
}

const LOOK_INTERVAL_MS = 50;
/** Longer than a killed worker's lease (10 s) and its messages' visibility (30 s) together. */
const EVENTUALLY_MS_MAX = 60_000;
