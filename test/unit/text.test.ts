import { asMarkdownText, assertText, DESCRIPTION_CHARACTERS_MAX } from "../../src/domain/text.ts";

describe("assertText", () => {
  test.each(["", "Zürich ☕ 🎉", "tab\tline\r\n", "x".repeat(DESCRIPTION_CHARACTERS_MAX)])(
    "lets %p through",
    (text) => {
      expect(() => assertText(text, "description")).not.toThrow();
    },
  );

  test.each(["\u0000", "\ud800", "\udc00x", "\ufffe", "\uffff", "\u001b[0m", "x".repeat(501)])(
    "refuses %j, which no queue carries",
    (text) => {
      expect(() => assertText(text, "description")).toThrow(/description: /);
    },
  );
});

test("a caller's text is shown literally where Markdown is rendered", () => {
  expect(asMarkdownText(" two [coffees](http://x) **settled** <b> `k` ")).toBe(
    "two \\[coffees\\]\\(http://x\\) \\*\\*settled\\*\\* \\<b\\> \\`k\\`",
  );
});
