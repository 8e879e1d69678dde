import fc from "fast-check";
import { expectInvariants, useDatabase } from "../support/database.ts";
import { SEED, capture, index, pay, refund, status } from "./money-steps.ts";
import { World } from "./money-world.ts";
import type { Step } from "./money-world.ts";

jest.setTimeout(1_800_000);
const database = useDatabase({ poolMax: 4 });

const RUNS = Number(process.env["REMIT_MODEL_RUNS"] ?? 200);
const COMMANDS_MAX = 24;

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    pay,
    capture,
    refund,
    { weight: 8, arbitrary: fc.record({ do: fc.constant("deliver" as const), which: index }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom("void", "cancel", "lapse", "expire", "replay", "contradict"),
        which: index,
      }),
    },
    status,
  ),
  { minLength: 4, maxLength: COMMANDS_MAX },
);

test(`${RUNS} random sequences do what the model says (REMIT_MODEL_SEED=${SEED})`, async () => {
  const property = fc.asyncProperty(steps, async (sequence) => {
    const world = await World.create(database());
    for (const step of sequence) await world.take(step);
    await world.compare();
    await world.deliverAll();
    await world.compare();
  });
  const run = await fc.check(property, { numRuns: RUNS, seed: SEED });
  expect(run.failed ? await fc.asyncDefaultReportMessage(run) : "").toBe("");
  await expectInvariants(database(), 0);
});
