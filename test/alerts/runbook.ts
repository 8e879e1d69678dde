import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";

export const STAGES = ["See it", "Mend it", "It worked"] as const;
export type Stage = (typeof STAGES)[number];

/** How the shell blocks of a runbook are run: where, and with which variables. */
export interface Shell {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

/** What a block may end with while something is broken: a dependency is away, a check failed. */
const EXITS_WHILE_BROKEN = [5, 6];
const BLOCK_MS_MAX = 90_000;

/** The blocks that an operator types at this stage; those marked `sh alternative` are for another cause or another place. */
export function shellBlocks(alert: string, stage: Stage): string[] {
  const [, section = ""] = sectionOf(readRunbook(alert), stage);
  return blocksOf(section)
    .filter(({ isAlternative }) => !isAlternative)
    .map(({ text }) => text);
}

export function readRunbook(alert: string): string {
  return readFileSync(`docs/runbooks/${alert}.md`, "utf8");
}

function sectionOf(page: string, stage: Stage): RegExpMatchArray | [] {
  return new RegExp(`^## ${stage}$(.*?)(?=^## |$(?![\\s\\S]))`, "ms").exec(page) ?? [];
}

/** All shell blocks of a page, those in lists, too. */
export function blocksOf(page: string): { text: string; isAlternative: boolean }[] {
  return [...page.matchAll(/^( *)```sh( alternative)?\n(.*?)^\1```$/gms)].map(
    ([, indent = "", alternative, text = ""]) => ({
      text: text.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
      isAlternative: alternative !== undefined,
    }),
  );
}

/** Runs a stage's blocks one by one and answers all that they said; throws where one fails. */
export async function followRunbook(alert: string, stage: Stage, shell: Shell): Promise<string> {
  let said = "";
  for (const block of shellBlocks(alert, stage)) said += await runBlock(block, stage, shell);
  return said;
}

async function runBlock(block: string, stage: Stage, { cwd, env }: Shell): Promise<string> {
  const script = stage === "See it" ? tolerant(block) : `set -euo pipefail\n${block}`;
  return await new Promise((resolve, reject) => {
    execFile(
      "bash",
      ["--norc", "-c", script],
      { cwd, env, timeout: BLOCK_MS_MAX },
      (error, out, err) => {
        if (error === null) resolve(out + err);
        else reject(new Error(`${stage}: exit ${String(error.code)}\n${block}\n${out}\n${err}`));
      },
    );
  });
}

function tolerant(block: string): string {
  const allowed = EXITS_WHILE_BROKEN.join("|");
  return `set -u; bad=0; trap 'case $? in ${allowed}) ;; *) bad=1 ;; esac' ERR\n${block}\nexit $bad`;
}
