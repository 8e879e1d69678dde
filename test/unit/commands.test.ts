import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createProgram, runCommandLine } from "../../src/cli/program.ts";
import { commandLinesOf, misnamed } from "../support/command-lines.ts";

const ROOT = join(__dirname, "../..");
const MAIN = join(ROOT, "src/cli/main.ts");
const PAY = ["pay", "--from", "a", "--to", "b", "--currency", "EUR", "--key", "k"];

describe("the command line", () => {
  test.each([
    [["frob"], 2, "usage"],
    [["pay", "--nope"], 2, "usage"],
    [["pay"], 2, "usage"],
    [["relay", "pause"], 2, "usage"],
    [["verify", "--grace", "soon"], 2, "usage"],
    [["worker", "--role", "cook"], 2, "usage"],
    [["payment", "list", "--status", "lost"], 2, "usage"],
    [["account", "create", "a b", "--currency", "EUR"], 2, "account_invalid"],
    [["account", "create", "a", "--currency", "XAU"], 2, "currency_unknown"],
    [[...PAY, "--amount", "-5"], 2, "amount_invalid"],
    [[...PAY, "--amount", "1", "--amount-minor", "100"], 2, "amount_invalid"],
    [[...PAY, "--amount", "1", "--to", "a"], 2, "same_account"],
    [["pay", "--file", "p.csv", "--key", "k"], 2, "usage"],
    [[...PAY, "--amount", "1", "--concurrency", "2"], 2, "usage"],
    [["account", "list", "--data-dir", "/absent"], 5, "database_unreachable"],
  ])("answers %j with exit %d and one document of code %s", async (words, exit, code) => {
    const out: string[] = [];
    const err: string[] = [];
    const ran = await runCommandLine([...words, "--json"], {
      out: (line) => out.push(line),
      err: (line) => err.push(line),
    });
    expect([ran, out.length, err]).toEqual([exit, 1, []]);
    expect(JSON.parse(out.join(""))).toMatchObject({ code });
  });

  test("is a process that exits with that code and names the fix on stderr alone", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "remit-commands-"));
    const ran = await new Promise((resolve) => {
      const env = { PATH: process.env["PATH"], HOME: cwd };
      const words = [MAIN, ...PAY, "--amount", "1.234"];
      execFile(process.execPath, words, { cwd, env }, (error, out, err) => {
        resolve({ exit: error?.code, out, err });
      });
    });
    rmSync(cwd, { recursive: true });
    expect(ran).toEqual({
      exit: 2,
      out: "",
      err: expect.stringMatching(/^error: amount: expected .*\n {2}fix: /),
    });
  }, 30_000);
});

describe("docs/commands.md", () => {
  test("names each command and no other", () => {
    const page = readFileSync(join(ROOT, "docs/commands.md"), "utf8");
    const documented = [...page.matchAll(/^\| `remit ([a-z -]+?)(?: [A-Z-].*?)?` +\|/gm)].map(
      ([, name]) => name,
    );
    const existing = createProgram().commands.flatMap((command) =>
      command.commands.length === 0
        ? [command.name()]
        : command.commands.map((child) => `${command.name()} ${child.name()}`),
    );
    expect(new Set(documented)).toEqual(new Set(existing));
  });
});

describe("docs/deploy.md", () => {
  test("uses only commands and options that exist", () => {
    const lines = commandLinesOf(readFileSync(join(ROOT, "docs/deploy.md"), "utf8"));
    expect(lines.length).toBeGreaterThan(10);
    expect(lines.map(misnamed).filter((problem) => problem !== null)).toEqual([]);
  });
});
