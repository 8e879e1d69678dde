import { playClosedAccount, playRefusal } from "./demo-refusals.ts";
import { playCrash } from "./demo-crash.ts";
import { playOutage } from "./demo-outage.ts";
import { playPayment } from "./demo-payment.ts";
import { playRedelivery, playReplay } from "./demo-repeats.ts";
import { playVerify } from "./demo-stage.ts";
import type { Stage } from "./demo-stage.ts";

export interface Scenario {
  readonly about: string;
  readonly play: (stage: Stage) => Promise<void>;
}

/** What can be played; each ends with all invariants. */
export const SCENARIOS = {
  happy: {
    about: "a payment on its whole way",
    play: async (stage) => {
      await playPayment(stage);
    },
  },
  replay: {
    about: "the same request again",
    play: async (stage) => {
      await playReplay(stage, await playPayment(stage));
    },
  },
  "no-funds": { about: "a payment that nobody can afford", play: playRefusal },
  "closed-account": {
    about: "the destination closes after the payment was accepted",
    play: playClosedAccount,
  },
  duplicate: {
    about: "the same message, delivered again",
    play: async (stage) => {
      await playRedelivery(stage, await playPayment(stage));
    },
  },
  outage: { about: "the broker is away, and payments go on", play: playOutage },
  crash: { about: "the worker dies between SNS's answer and the mark", play: playCrash },
} as const satisfies Record<string, Scenario>;

export type ScenarioName = keyof typeof SCENARIOS;
export const SCENARIO_NAMES = Object.keys(SCENARIOS) as ScenarioName[];

/** What is played unless said: one payment and what may happen to it. */
export async function playStandard(stage: Stage): Promise<void> {
  const scene = await playPayment(stage);
  await playReplay(stage, scene);
  await playRedelivery(stage, scene);
  await playRefusal(stage);
  await playVerify(stage);
}

/** Each scenario has keys of its own, so that several can be played in one run. */
export async function playScenario(stage: Stage, name: ScenarioName): Promise<void> {
  const { about, play } = SCENARIOS[name];
  stage.story.chapter(name, about);
  await play({ ...stage, run: `${stage.run}-${name}` });
  await playVerify(stage);
}
