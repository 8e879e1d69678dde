import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";

/** `npm run chaos` in its short form: it says that all is right where it is, and finds what was planted. */

interface Line {
  readonly scenario: string;
  readonly runs: number;
  readonly payments: number;
  readonly lost: number;
  readonly doubled: number;
  readonly problems: readonly string[];
}

async function chaos(line: string): Promise<{ exitCode: number; lines: Line[]; said: string }> {
  const child = spawn(process.execPath, [resolve("chaos/main.ts"), "--json", ...line.split(" ")], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [out, said] = ["", ""];
  child.stdout.on("data", (text) => (out += String(text)));
  child.stderr.on("data", (text) => (said += String(text)));
  const [exitCode] = (await once(child, "close")) as [number];
  const lines = out.split("\n").filter((line) => line !== "");
  return { exitCode, lines: lines.map((line) => JSON.parse(line) as Line), said };
}

// What is lost stays open, and each later scenario would wait for it: it comes last.
describe("npm run chaos", () => {
  test("workers killed at failpoints lose and double nothing, and what is planted is found", async () => {
    const scenarios = ["worker:after-commit", "worker:before-mark"];
    const plants = ["entry-removed", "booked-twice", "inbox-outside-transaction", "swallowed-half"];

    const { exitCode, lines, said } = await chaos(
      `--scenario ${scenarios.join(",")} --runs 2 --seed 7 --plant ${plants.join(",")}`,
    );

    const told = lines.map(({ scenario, runs, lost, doubled }) => ({
      scenario,
      runs,
      lost,
      doubled,
    }));
    expect({ told, said }).toEqual({
      told: [
        { scenario: "worker:after-commit", runs: 2, lost: 0, doubled: 0 },
        { scenario: "worker:before-mark", runs: 2, lost: 0, doubled: 0 },
        { scenario: "plant:entry-removed", runs: 0, lost: 1, doubled: 0 },
        { scenario: "plant:booked-twice", runs: 0, lost: 0, doubled: 1 },
        expect.objectContaining({ scenario: "plant:inbox-outside-transaction", doubled: 0 }),
        expect.objectContaining({ scenario: "plant:swallowed-half", doubled: 0 }),
      ],
      said: expect.any(String),
    });
    expect(lines.slice(0, 2).flatMap(({ problems }) => problems)).toEqual([]);
    expect(lines.slice(-2).filter(({ lost }) => lost === 0)).toEqual([]);
    expect(exitCode).toBe(0);
  }, 180_000);

  test("a scenario that doesn't exist is a mistake of the caller's", async () => {
    const { exitCode, lines, said } = await chaos("--scenario worker:after-lunch");

    expect([exitCode, lines]).toEqual([2, []]);
    expect(said).toContain("no scenario worker:after-lunch");
  });
});
