import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { STAGES, blocksOf, readRunbook, shellBlocks } from "../alerts/runbook.ts";
import { scaleRules } from "../alerts/scaled-rules.ts";
import { RULES_FILE, alertRules } from "../support/alert-rules.ts";
import { misnamed } from "../support/command-lines.ts";

const alerts = alertRules().map(({ alert }) => alert);

describe("docs/runbooks", () => {
  test("has a page for each alert, and no other", () => {
    const pages = readdirSync("docs/runbooks").map((file) => file.replace(/\.md$/, ""));
    expect(pages.toSorted()).toEqual(alerts.toSorted());
  });

  test.each(alerts)(
    "%s says what it means, how to see it, to mend it, and that it worked",
    (alert) => {
      const page = readRunbook(alert);
      const titles = [...page.matchAll(/^#+ (.*)$/gm)].map(([, title]) => title);
      expect(titles).toEqual([alert, ...STAGES]);
      expect(shellBlocks(alert, "See it").length).toBeGreaterThan(0);
      expect(shellBlocks(alert, "It worked").length).toBeGreaterThan(0);
    },
  );

  test.each(alerts)(
    "%s names commands and options that exist, those for other causes, too",
    (alert) => {
      const lines = blocksOf(readRunbook(alert)).flatMap(({ text }) => text.split("\n"));
      const ours = lines.flatMap((line) => /^remit (.*)$/.exec(line)?.[1] ?? []);
      expect(ours.map((line) => misnamed(line.split(" "))).filter((one) => one !== null)).toEqual(
        [],
      );
    },
  );

  test("leads to pages and sections that are there", () => {
    const files = [
      ...alerts.map((alert) => `docs/runbooks/${alert}.md`),
      "docs/operations.md",
      "docs/doctor.md",
    ];
    const broken = files.flatMap((file) => brokenLinks(file));
    expect(broken).toEqual([]);
  });
});

describe("the rules of the firing tests", () => {
  test("are the real ones with minutes for seconds, and nothing else changed", () => {
    const text = readFileSync(RULES_FILE, "utf8");
    const scaled = scaleRules(text);
    const changed = text.split("\n").filter((line, index) => line !== scaled.split("\n")[index]);
    expect(changed.length).toBeGreaterThan(alerts.length);
    for (const line of changed) expect(line).toMatch(/^ +for: \d+m$|\[\d+m\]|\d+ \* (60|3600)\b/);
    expect(scaled).not.toMatch(/for: \d+m|\[\d+m\]|\* 3600/);
  });
});

function brokenLinks(file: string): string[] {
  const links = [...readFileSync(file, "utf8").matchAll(/\]\(([^)]+)\)/g)].map(([, to = ""]) => to);
  return links.filter((link) => {
    if (link.startsWith("http")) return false;
    const [path = "", anchor] = link.split("#");
    const target = path === "" ? file : join(dirname(file), path);
    if (!existsSync(target)) return true;
    return anchor !== undefined && !anchorsOf(readFileSync(target, "utf8")).includes(anchor);
  });
}

/** As GitHub makes them of headings. */
function anchorsOf(page: string): string[] {
  return [...page.matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) =>
    title
      .toLowerCase()
      .replaceAll(/[^a-z0-9 _-]/g, "")
      .replaceAll(" ", "-"),
  );
}
