import fc from "fast-check";
import { expectInvariants, useDatabase } from "../support/database.ts";
import type { Status } from "./money-model.ts";
import { World } from "./money-world.ts";
import type { Step } from "./money-world.ts";

jest.setTimeout(1_800_000);
const database = useDatabase({ poolMax: 4 });

const RUNS = Number(process.env["REMIT_MODEL_RUNS"] ?? 200);
const SEED = Number(process.env["REMIT_MODEL_SEED"] ?? Date.now() % 2_147_483_647);
const COMMANDS_MAX = 24;

const index = fc.nat({ max: 5 });
const amount = fc.integer({ min: 1, max: 7_000 });
const part = fc.option(fc.integer({ min: 1, max: 5_000 }), { nil: null });
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constant("pay" as const),
        from: index,
        to: index,
        amount,
        isManual: fc.boolean(),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant("capture" as const),
        which: index,
        amount: part,
        final: fc.boolean(),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constant("refund" as const), which: index, amount: part }),
    },
    { weight: 8, arbitrary: fc.record({ do: fc.constant("deliver" as const), which: index }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom("void", "cancel", "lapse", "expire", "replay", "contradict"),
        which: index,
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("status" as const),
        account: index,
        status: fc.constantFrom<Status>("active", "frozen", "closed", "active"),
      }),
    },
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
