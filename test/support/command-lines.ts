import { createProgram } from "../../src/cli/program.ts";

/** Each `remit …` of a page: the lines of its shell blocks and its code spans, as words. */
export function commandLinesOf(page: string): string[][] {
  const blocks = [...page.matchAll(/^```sh\n(.*?)^```/gms)].flatMap(([, block = ""]) =>
    block.split("\n").flatMap((line) => /(?:^|.* )remit (?=[a-z])(.*)$/.exec(line)?.[1] ?? []),
  );
  const spans = [...page.matchAll(/`remit ([a-z][^`]*)`/g)].map(([, words = ""]) => words);
  return [...blocks, ...spans].map((line) => line.split(" "));
}

/** What is wrong with a command line as far as names go; null where it names a command and options that exist. */
export function misnamed(words: readonly string[]): string | null {
  let command = createProgram();
  const rest = [...words];
  while (command.commands.length > 0) {
    const name = rest.shift() ?? "";
    const found = command.commands.find((child) => child.name() === name);
    if (found === undefined) return `remit ${words.join(" ")}: no command ${name}`;
    command = found;
  }
  const flags = rest.filter((word) => word.startsWith("--")).map((word) => word.split("=")[0]);
  const unknown = flags.find((flag) => !command.options.some(({ long }) => long === flag));
  return unknown === undefined ? null : `remit ${words.join(" ")}: no option ${unknown}`;
}
