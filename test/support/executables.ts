import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

export interface WantedExecutable {
  /** The variable that names it, before the search on PATH. */
  readonly variable: string;
  readonly names: readonly string[];
  /** What the test needs it for and how to get it. */
  readonly missing: string;
}

/** The path of a program of the system's; a test that needs one fails without it. */
export function findExecutable(
  env: NodeJS.ProcessEnv,
  { variable, names, missing }: WantedExecutable,
): string {
  const named = env[variable] ?? "";
  if (named !== "") {
    if (isExecutable(named)) return named;
    throw new Error(`${variable} names no executable file: ${named}`);
  }
  const folders = (env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  const found = names
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find(isExecutable);
  if (found === undefined) throw new Error(missing);
  return found;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
