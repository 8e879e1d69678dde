import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { inheritedEnvironment } from "../../src/local/environment.ts";
import type { Flow } from "./flow.ts";

const MAIN = resolve("src/cli/main.ts");

export interface Ran {
  readonly exit: number | null;
  readonly out: string;
  readonly err: string;
}

/** Starts a command as a person does: a process of its own, which finds its targets in the environment. */
export function startRemit(
  { env: targets }: Pick<Flow, "env">,
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): ChildProcess {
  const place = { ...inheritedEnvironment(), HOME: tmpdir() };
  return spawn(process.execPath, [MAIN, ...words], {
    cwd: tmpdir(),
    env: { ...place, ...targets, ...env },
  });
}

export async function endOfRemit(child: ChildProcess): Promise<Ran> {
  let [out, err] = ["", ""];
  child.stdout?.on("data", (text) => (out += String(text)));
  child.stderr?.on("data", (text) => (err += String(text)));
  const exit = await new Promise<number | null>((done) => child.once("close", done));
  return { exit, out, err };
}

/** Runs a command to its end. */
export async function runRemit(
  flow: Pick<Flow, "env">,
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Ran> {
  return await endOfRemit(startRemit(flow, words, env));
}
