import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { commandLinesOf, misnamed } from "../support/command-lines.ts";

/** Pages that quote tests by file and name, and name files: what they claim must be there. */

const ROOT = join(__dirname, "../..");
const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");

describe.each(["docs/seeds.md", "docs/cases.md", "README.md"])("%s", (name) => {
  const page = read(name);

  test("names files that exist", () => {
    const spans = [...page.matchAll(/`([^`\n]+)`/g)].map(([, span = ""]) => span);
    const links = [...page.matchAll(/\]\(((?!https?:)[^)#]+)\)/g)].map(([, link = ""]) => link);
    const files = [
      ...spans.filter((span) =>
        /^(src|test|docs|migrations|deploy|bench)(\/[\w./-]+)?$/.test(span),
      ),
      ...links.map((link) => join(name, "..", link)),
    ];
    expect(files.length).toBeGreaterThan(3);
    expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
  });

  test("quotes tests by the names that they have", () => {
    const quotes = [...page.matchAll(/`(test\/[\w./-]+\.test\.ts)` › "([^"]+)"/g)];
    expect(quotes.length).toBeGreaterThanOrEqual(5);
    const missing = quotes.filter(([, file = "", title = ""]) => !hasTest(read(file), title));
    expect(missing.map(([quote]) => quote)).toEqual([]);
  });

  test("uses only commands and options that exist", () => {
    const lines = commandLinesOf(page.replaceAll(/ +# .*$/gm, "")).map((words) => misnamed(words));
    expect(lines.filter((problem) => problem !== null)).toEqual([]);
  });
});

/** In its file a test's name is a whole string, or the part of one before a parenthesis. */
function hasTest(source: string, title: string): boolean {
  return ['"', "'", "`"].some(
    (quote) => source.includes(`${quote}${title}${quote}`) || source.includes(`${quote}${title} (`),
  );
}
