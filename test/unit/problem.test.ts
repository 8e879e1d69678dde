import { readFileSync } from "node:fs";
import { join } from "node:path";
import { CommanderError } from "commander";
import { FIXES } from "../../src/cli/fixes.ts";
import { reportProblem } from "../../src/cli/problem.ts";
import { toProblem } from "../../src/client/problem.ts";
import { DomainError, ERROR_CODES } from "../../src/domain/errors.ts";
import type { ErrorCode } from "../../src/domain/errors.ts";

const CODES = Object.keys(ERROR_CODES) as ErrorCode[];

function report(thrown: unknown, isJson: boolean): { exit: number; out: string[]; err: string[] } {
  const out: string[] = [];
  const err: string[] = [];
  const output = { out: (line: string) => out.push(line), err: (line: string) => err.push(line) };
  return { exit: reportProblem(thrown, { output, isJson }), out, err };
}

describe("a reported refusal", () => {
  test("is one document on stdout with --json, and nothing on stderr", () => {
    const error = new DomainError("insufficient_funds", "alice has 1.00 EUR", {
      details: { replayed: true, amountMinor: 5n, code: "other" },
    });
    const { exit, out, err } = report(error, true);
    expect([exit, err, out.length]).toEqual([4, [], 1]);
    expect(JSON.parse(out.join(""))).toEqual({
      type: "urn:remit:problem:insufficient_funds",
      title: "The source has too little available",
      detail: "alice has 1.00 EUR",
      code: "insufficient_funds",
      replayed: true,
      amountMinor: "5",
    });
  });

  test.each(CODES)("names the fix of %s and exits with its code", (code) => {
    const { exit, out, err } = report(new DomainError(code, "this and that"), false);
    expect(exit).toBe(ERROR_CODES[code].exit);
    expect(out).toEqual([]);
    expect(err.join("\n")).toContain(`error: this and that (${code})\n  fix: ${FIXES[code]}`);
  });

  test("names the fix that it knows itself before the one of its code", () => {
    const error = new DomainError("outcome_unknown", "this and that", {
      details: { fix: "do so" },
    });
    expect(report(error, false).err).toEqual([
      "error: this and that (outcome_unknown)\n  fix: do so",
    ]);
    expect(JSON.parse(report(error, true).out.join(""))).toMatchObject({ fix: "do so" });
  });

  test("is usage where the command wasn't understood", () => {
    const thrown = new CommanderError(1, "commander.unknownOption", "error: unknown option '--x'");
    expect(report(thrown, false)).toMatchObject({ exit: 2 });
    expect(JSON.parse(report(thrown, true).out.join(""))).toMatchObject({
      code: "usage",
      detail: "unknown option '--x'",
    });
  });

  test("is internal where nobody foresaw it", () => {
    expect(report(new TypeError("x is undefined"), true)).toMatchObject({ exit: 1 });
    expect(report("a string", false).exit).toBe(1);
  });
});

describe("docs/errors.md", () => {
  test("lists each code with its exit, title and fix, and no other", () => {
    const page = readFileSync(join(__dirname, "../../docs/errors.md"), "utf8");
    const rows = page.split(/^## Exit /m).flatMap((section) =>
      [...section.matchAll(/^\| `([a-z_]+)`( _repeat_)? +\| (.*?) +\| (.*?) +\|$/gm)].map(
        ([, code, repeat, title, fix]) => ({
          code,
          exit: Number(section[0]),
          retryable: repeat !== undefined,
          title,
          fix,
        }),
      ),
    );
    const expected = CODES.map((code) => ({ code, ...ERROR_CODES[code], fix: FIXES[code] }));
    const byCode = (list: readonly { code?: unknown }[]): unknown =>
      list.toSorted((a, b) => String(a.code).localeCompare(String(b.code)));
    expect(byCode(rows)).toEqual(byCode(expected));
    expect(toProblem(new DomainError("usage", "x")).type).toBe("urn:remit:problem:usage");
  });
});
