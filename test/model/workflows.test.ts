import fc from "fast-check";
import { verify } from "../../src/database/invariants.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { relayPauseUpdate, relayResumeUpdate } from "../../src/workflows/messages.ts";
import { eventually } from "../support/eventually.ts";
import { useFlow } from "../support/flow.ts";
import { FlowWorld } from "./flow-world.ts";
import type { FlowStep } from "./flow-world.ts";
import { SEED, capture, index, pay, refund, status } from "./money-steps.ts";

/**
 * The sequences of money.test.ts through client, Temporal, workers, broker and ledger. They run side by side, in rounds:
 * while the relay is paused each takes some steps, then all is delivered and compared.
 */
jest.setTimeout(1_800_000);
const flow = useFlow();

const RUNS = Number(process.env["REMIT_MODEL_FLOW_RUNS"] ?? 12);
const ROUNDS = 5;
const STEPS_MAX = 4;

const step: fc.Arbitrary<FlowStep> = fc.oneof(
  pay,
  capture,
  refund,
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom("void" as const, "cancel" as const),
      which: index,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom("replay" as const, "reuse" as const),
      which: index,
    }),
  },
  status,
);
const sequence: fc.Arbitrary<FlowStep[][]> = fc.array(
  fc.array(step, { minLength: 1, maxLength: STEPS_MAX }),
  { minLength: ROUNDS, maxLength: ROUNDS },
);

function relay() {
  return flow().client.workflow.getHandle(workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }));
}

/** Whatever the ledger has to decide, it has decided. */
async function untilDecided(): Promise<void> {
  const undecided = async (): Promise<unknown[]> =>
    await flow().database.admin(
      `SELECT o.id, o.type, o.status
         FROM remit.outbox o
        WHERE (o.type = 'payment.created' AND o.headers ->> 'capture' = 'automatic' OR o.type IN ('payment.captured', 'refund.created'))
          AND NOT EXISTS (SELECT FROM remit.inbox i WHERE i.message_id = o.id)`,
    );
  await eventually(async () => expect(await undecided()).toEqual([]), { timeoutMs: 60_000 });
}

/** As many at once as keep the machine busy without anybody waiting too long. */
const AT_ONCE = 20;

async function playTogether(sequences: readonly FlowStep[][][]): Promise<void> {
  const worlds: FlowWorld[] = [];
  for (const _sequence of sequences) worlds.push(await FlowWorld.create(flow()));
  /** Names the sequence that a failure is of. */
  const each = async (work: (world: FlowWorld, steps: FlowStep[][]) => Promise<void>) => {
    const results = await Promise.allSettled(
      worlds.map(async (world, at) => await work(world, sequences[at] ?? [])),
    );
    const failures = results.flatMap((result, at) =>
      result.status === "fulfilled"
        ? []
        : [{ steps: sequences[at], error: result.reason as unknown }],
    );
    expect(failures).toEqual([]);
  };
  for (let round = 0; round < ROUNDS; round += 1) {
    await relay().executeUpdate(relayPauseUpdate, { args: [{ reason: "a round of the model" }] });
    await each(async (world, steps) => {
      for (const next of steps[round] ?? []) await world.take(next);
      await world.compare();
    });
    await relay().executeUpdate(relayResumeUpdate, { args: [] });
    await untilDecided();
    await each(async (world) => {
      world.settle();
      await world.compare();
    });
  }
  await each(async (world) => await world.compareRuns());
}

test(`${RUNS} random sequences do what the model says, through everything (REMIT_MODEL_SEED=${SEED})`, async () => {
  await flow().startWorker();
  await eventually(async () => await relay().describe());
  const sequences = fc.sample(sequence, { numRuns: RUNS, seed: SEED });
  for (let from = 0; from < RUNS; from += AT_ONCE) {
    await playTogether(sequences.slice(from, from + AT_ONCE));
  }
  await eventually(
    async () => {
      const { invariants } = await verify(flow().database.app, { graceSeconds: 0 });
      expect(invariants.filter(({ ok }) => !ok)).toEqual([]);
    },
    { timeoutMs: 30_000 },
  );
});
