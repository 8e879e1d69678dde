import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse } from "yaml";
import { RULES_FILE, RULES_TEST_FILE, alertRules } from "../support/alert-rules.ts";
import { misnamed } from "../support/command-lines.ts";
import { findPromtool } from "./prometheus-binaries.ts";

const rules = alertRules();

interface RulesTest {
  readonly tests: {
    readonly name: string;
    readonly promql_expr_test: { readonly expr: string; readonly exp_samples: unknown[] }[];
  }[];
}

async function promtool(...words: string[]): Promise<{ exit: unknown; text: string }> {
  return await new Promise((resolve) => {
    execFile(findPromtool(process.env), words, (error, out, err) => {
      resolve({ exit: error === null ? 0 : error.code, text: out + err });
    });
  });
}

describe("deploy/alerts/remit.rules.yaml", () => {
  test("is what Prometheus takes", async () => {
    const { exit, text } = await promtool("check", "rules", RULES_FILE);
    expect([exit, text]).toEqual([0, expect.stringContaining(`${rules.length} rules found`)]);
  });

  test("fires and is quiet as its unit tests say", async () => {
    const { exit, text } = await promtool("test", "rules", RULES_TEST_FILE);
    expect([exit, text]).toEqual([0, expect.stringContaining("SUCCESS")]);
  });

  test("has for each alert a case that fires and one that is quiet", () => {
    const { tests } = parse(readFileSync(RULES_TEST_FILE, "utf8")) as RulesTest;
    const cases = tests.flatMap((one) => one.promql_expr_test);
    const asked = (isFiring: boolean): Set<string | undefined> =>
      new Set(
        cases
          .filter((one) => one.exp_samples.length > 0 === isFiring)
          .map(({ expr }) => /alertname="(\w+)"/.exec(expr)?.[1]),
      );
    const names = rules.map(({ alert }) => alert);
    expect(names.filter((name) => !asked(true).has(name))).toEqual([]);
    expect(names.filter((name) => !asked(false).has(name))).toEqual([]);
  });

  test("asks for metrics that docs/operations.md names", () => {
    const page = readFileSync("docs/operations.md", "utf8");
    const documented = new Set(
      [...page.matchAll(/^\| `((?:remit|temporal)_\w+)`/gm)].map(([, name]) => name),
    );
    const asked = rules.flatMap(({ expr }) => expr.match(/\b(remit|temporal)_\w+/g) ?? []);
    expect(asked.filter((name) => !documented.has(name))).toEqual([]);
  });

  test("stands beside dashboard queries in docs/operations.md that Prometheus takes, on metrics that there are", async () => {
    const page = readFileSync("docs/operations.md", "utf8");
    const [, block = ""] = /^```promql\n(.*?)^```/ms.exec(page) ?? [];
    const queries = block.trim().split("\n");
    expect(queries.length).toBeGreaterThan(10);
    const dir = mkdtempSync(join(tmpdir(), "remit-queries-"));
    const file = join(dir, "queries.yaml");
    const recorded = queries.map((expr, index) => ({ record: `query:${index}`, expr }));
    writeFileSync(file, JSON.stringify({ groups: [{ name: "dashboard", rules: recorded }] }));
    const { exit, text } = await promtool("check", "rules", file);
    rmSync(dir, { recursive: true });
    expect([exit, text]).toEqual([0, expect.stringContaining(`${queries.length} rules found`)]);
    const named = queries.flatMap(
      (query) => query.match(/\b(remit|temporal)_\w+?(?=_bucket|\b)/g) ?? [],
    );
    expect(named.filter((name) => !page.includes(`| \`${name}\``))).toEqual([]);
  });

  test.each(rules.map((rule) => [rule.alert, rule] as const))(
    "%s has a severity, says what it means and what to type, and leads to its runbook",
    (alert, { labels, annotations }) => {
      const { summary, description, runbook_url: runbook } = annotations;
      expect(["critical", "warning"]).toContain(labels["severity"]);
      expect(summary).not.toBe("");
      expect(description).toMatch(/Type: \S+/);
      const typed = description.split("Type: ")[1] ?? "";
      const commands = typed.split("; ").filter((words) => words.startsWith("remit "));
      expect(
        commands.map((words) => misnamed(words.split(" ").slice(1))).filter((one) => one !== null),
      ).toEqual([]);
      const path = runbook.replace("{{ $externalLabels.remit_docs }}", "");
      expect(path).toBe(`docs/runbooks/${alert}.md`);
      expect(existsSync(path)).toBe(true);
    },
  );
});
