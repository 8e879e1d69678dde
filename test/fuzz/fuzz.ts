import fc from "fast-check";

/** How much is tried: 300 of each in CI, 30,000 by `npm run test:fuzz`. */
const RUNS = Number(process.env["REMIT_FUZZ_RUNS"] ?? 300);
/** Stands in each test's name, so that a failure can be played again. */
export const SEED = Number(process.env["REMIT_FUZZ_SEED"] ?? Date.now() % 2_147_483_647);

/** The smallest input that breaks the property, as a text; "" where none does. `share`: of the runs, for what is slow. */
export async function counterexample<Input>(
  inputs: fc.Arbitrary<Input>,
  property: (input: Input) => Promise<void> | void,
  { share = 1 } = {},
): Promise<string> {
  const run = await fc.check(
    fc.asyncProperty(inputs, async (input) => await property(input)),
    {
      numRuns: Math.ceil(RUNS * share),
      seed: SEED,
    },
  );
  if (!run.failed) return "";
  return `${await fc.asyncDefaultReportMessage(run)}\n${String(run.errorInstance)}`;
}

/** Every kind of character that a machine or a person may bring: controls, quotes, emoji, lone surrogates, endless ones. */
export const oddText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.string({ unit: "grapheme", maxLength: 40 }),
  fc.string({
    unit: fc.constantFrom(
      "\0",
      "\u0001",
      "\ufffe",
      "\uffff",
      "\ud800",
      "\udfff",
      '"',
      "\\",
      "'",
      "\n",
      "\r",
      "\t",
      "💸",
      "é",
      " ",
    ),
    maxLength: 12,
  }),
  fc.constantFrom(
    "",
    " ",
    "-",
    "--",
    "__proto__",
    "constructor",
    "toString",
    "null",
    "NaN",
    "-0",
    "1e3",
    "0x10",
    "٣",
    "．",
    "\ufeff",
  ),
  fc.string({ minLength: 1, maxLength: 3 }).map((text) => text.repeat(2_000)),
);
