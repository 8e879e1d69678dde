import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { basename, delimiter, dirname, join } from "node:path";

export interface Instruction {
  readonly keyword: string;
  readonly rest: string;
}

export interface Stage {
  readonly name: string;
  readonly instructions: readonly Instruction[];
}

/** The stages of a Dockerfile that keeps to one line an instruction and names every stage. */
export function stagesOf(text: string): Stage[] {
  const stages: { name: string; instructions: Instruction[] }[] = [];
  for (const line of text
    .split("\n")
    .filter((each) => each.trim() !== "" && !each.startsWith("#"))) {
    const [, keyword = "", rest = ""] = /^([A-Z]+) (.*)$/.exec(line) ?? [];
    if (keyword === "") throw new Error(`expected an instruction on one line, found: ${line}`);
    if (keyword === "FROM") stages.push({ name: rest.split(" AS ")[1] ?? "", instructions: [] });
    else stages.at(-1)?.instructions.push({ keyword, rest });
  }
  return stages;
}

/** Whether a path of the build context reaches the builder; for an ignore file of `*` and `!name` lines only. */
export function isInContext(ignoreFile: string, path: string): boolean {
  const lines = ignoreFile.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const [all, ...names] = lines;
  if (all !== "*" || names.some((name) => !/^![^/*]+$/.test(name))) {
    throw new Error("expected .dockerignore to ignore all but some names");
  }
  return names.includes(`!${path.split("/")[0]}`);
}

/**
 * Does what the Dockerfile says without an engine: each stage is a folder, COPY copies, RUN runs under sh in WORKDIR.
 * Packages of the operating system aren't installed.
 */
export function buildWithoutEngine({
  context,
  into,
  stages,
}: {
  context: string;
  into: string;
  stages: readonly string[];
}): void {
  const ignoreFile = readFileSync(join(context, ".dockerignore"), "utf8");
  const all = stagesOf(readFileSync(join(context, "Dockerfile"), "utf8"));
  for (const { name, instructions } of all.filter((stage) => stages.includes(stage.name))) {
    const root = join(into, name);
    let workdir = "/";
    for (const { keyword, rest } of instructions) {
      if (keyword === "WORKDIR") {
        workdir = rest;
        mkdirSync(join(root, workdir), { recursive: true });
      } else if (keyword === "COPY") {
        copy(rest, { context, into, cwd: join(root, workdir), root, ignoreFile });
      } else if (keyword === "RUN" && !rest.startsWith("apt-get ")) {
        run(rest, join(root, workdir));
      }
    }
  }
}

function copy(
  rest: string,
  where: { context: string; into: string; cwd: string; root: string; ignoreFile: string },
): void {
  const words = rest.split(" ");
  const from = /^--from=(.*)$/.exec(words[0] ?? "")?.[1];
  if (from !== undefined) {
    const [, source = "", target = ""] = words;
    mkdirSync(dirname(join(where.root, target)), { recursive: true });
    // By links: 300 MB needn't be there twice.
    execFileSync("cp", ["-alT", join(where.into, from, source), join(where.root, target)]);
    return;
  }
  const target = join(where.cwd, words.at(-1) ?? "");
  for (const source of words.slice(0, -1)) {
    if (!isInContext(where.ignoreFile, source)) {
      throw new Error(`COPY ${source}: .dockerignore keeps it out`);
    }
    const path = join(where.context, source);
    if (!existsSync(path)) throw new Error(`COPY ${source}: not found`);
    if (words.length > 2 || rest.endsWith("/")) copyFileSync(path, join(target, basename(source)));
    else cpSync(path, target, { recursive: true });
  }
}

function run(command: string, cwd: string): void {
  execFileSync("sh", ["-c", command], {
    cwd,
    env: {
      PATH: [dirname(process.execPath), process.env["PATH"]].join(delimiter),
      HOME: process.env["HOME"],
      // The same packages, from npm's cache where it has them.
      npm_config_prefer_offline: "true",
      npm_config_cache: process.env["npm_config_cache"],
    },
    stdio: ["ignore", "ignore", "inherit"],
  });
}
