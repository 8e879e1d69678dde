import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import fc from "fast-check";
import { createProgram, runCommandLine } from "../../src/cli/program.ts";
import { SEED, counterexample, oddText } from "./fuzz.ts";

/** Whatever is typed where nothing runs: one document, a code that says why, never a crash, never a payment. */

jest.setTimeout(1_800_000);

/** These run until they are told to stop, start a stack, or (doctor) end their process. */
const LEFT_OUT = new Set(["dev", "demo", "worker", "doctor"]);
const here = process.cwd();
const environment = { ...process.env };
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "remit-fuzz-"));
  writeFileSync(join(folder, "right.csv"), "key,from,to,amount,currency\nk,alice,shop,1.00,EUR\n");
  process.chdir(folder);
  // Nobody listens there, so what is understood finds a dependency away.
  process.env = {
    DATABASE_URL: "postgres://remit_app@127.0.0.1:1/remit",
    TEMPORAL_ADDRESS: "127.0.0.1:1",
  };
});
afterAll(() => {
  process.chdir(here);
  process.env = environment;
  rmSync(folder, { recursive: true });
});
afterEach(() => {
  process.exitCode = 0;
});

interface Vocabulary {
  readonly words: readonly string[];
  readonly flags: readonly string[];
}

function vocabularies(command: Command, path: readonly string[] = []): Vocabulary[] {
  const flags = command.options.flatMap(({ long }) => (long == null ? [] : [long]));
  const below = command.commands.filter((one) => !LEFT_OUT.has(one.name()));
  // A group by itself prints its help.
  if (below.length === 0) return [{ words: path, flags }];
  return below.flatMap((one) => vocabularies(one, [...path, one.name()]));
}

const value = fc.oneof(
  fc.constantFrom(
    "alice",
    "shop",
    "world:EUR",
    "1.00",
    "100",
    "EUR",
    "k",
    "manual",
    "7d",
    "right.csv",
    "/dev/null",
    ".",
    "/",
    "absent.csv",
  ),
  fc.constantFrom(
    "01a22f9c-e76e-76c9-b249-186963a5a6bd",
    "-1",
    "0",
    "999999999999",
    "1e9",
    "60s",
    "full",
  ),
  oddText,
);
const commandLines = fc
  .constantFrom(...vocabularies(createProgram()))
  .chain(({ words, flags }) =>
    fc
      .array(
        fc.oneof(
          fc.tuple(fc.constantFrom("--json", ...flags), value),
          fc.tuple(fc.constantFrom("--json", ...flags)),
          fc.tuple(value),
        ),
        { maxLength: 8 },
      )
      .map((more) => [...words, ...more.flat(), "--json"]),
  );

test(`each command line has one answer and an exit code that isn't "unexpected" (REMIT_FUZZ_SEED=${SEED})`, async () => {
  const lines = commandLines.filter((words) => !words.includes("--help"));
  expect(await counterexample(lines, checkAnswer, { share: 0.3 })).toBe("");
});

async function checkAnswer(words: readonly string[]): Promise<void> {
  const [out, err]: [string[], string[]] = [[], []];
  const exit = await runCommandLine(words, {
    out: (line) => out.push(line),
    err: (line) => err.push(line),
  });
  process.exitCode = 0;
  // 3: what is no id is the id of nothing.
  assert.ok([0, 2, 3, 5].includes(exit), `exit ${exit}: ${out.join()}`);
  assert.deepEqual([err, out.length], [[], 1]);
  const { code = "" } = JSON.parse(out[0] ?? "") as { code?: string };
  if (exit !== 0) assert.match(code, /^[a-z_]+$/);
}
