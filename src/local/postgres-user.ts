import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, chownSync, lchownSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { inheritedEnvironment } from "./environment.ts";

/** How PostgreSQL, which refuses to run as root, is run: what stands before its command, and whose its files are. */
export interface PostgresUser {
  readonly prefix: readonly string[];
  readonly spawnAs?: { readonly uid: number; readonly gid: number };
  readonly owner?: { readonly uid: number; readonly gid: number };
}

/**
 * An ordinary user runs PostgreSQL as itself. For root two ways are tried, by running the binary: a user namespace (it
 * sees itself as `nobody`, the files stay root's, whatever folder they lie in), then the user `nobody` itself, which
 * must be able to pass the folders above (containers often forbid namespaces). Capabilities don't help in the second
 * case: PostgreSQL looks for its own path with access(2), which ignores them.
 */
export function choosePostgresUser(binary: string): PostgresUser {
  if (process.getuid?.() !== 0) return { prefix: [] };

  const nobody = { uid: idOf("-u"), gid: idOf("-g") };
  const namespace: PostgresUser = {
    prefix: ["unshare", "--user", `--map-user=${nobody.uid}`, `--map-group=${nobody.gid}`],
  };
  const namespaceProblem = problemOf(binary, namespace);
  if (namespaceProblem === null) return namespace;

  const asNobody: PostgresUser = { prefix: [], spawnAs: nobody, owner: nobody };
  const nobodyProblem = problemOf(binary, asNobody);
  if (nobodyProblem === null) return asNobody;

  throw new Error(
    "PostgreSQL refuses to run as root, and can't be run as somebody else here " +
      `(in a user namespace: ${namespaceProblem}; as nobody: ${nobodyProblem}). ` +
      "Run remit as an ordinary user, or in a folder that every user may pass",
  );
}

/** Makes the data folder and everything in it belong to whom PostgreSQL runs as. */
export function giveDataDirTo({ owner }: PostgresUser, dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  if (process.getuid?.() !== 0) return;

  const { uid, gid } = owner ?? { uid: 0, gid: 0 };
  // Its owner must be able to reach it; the names in the folder above stay unreadable.
  if (owner !== undefined) chmodSync(dirname(dir), 0o711);
  if (statSync(dir).uid === uid) return;

  for (const name of readdirSync(dir, { recursive: true, encoding: "utf8" })) {
    lchownSync(join(dir, name), uid, gid);
  }
  chownSync(dir, uid, gid);
}

// Whether the way works at all and the binary and its libraries can be reached by it; reads no data folder.
function problemOf(binary: string, { prefix, spawnAs }: PostgresUser): string | null {
  const [command, ...args] = [...prefix, binary, "--describe-config"];
  const { error, status, stderr } = spawnSync(command, args, {
    env: inheritedEnvironment(),
    encoding: "utf8",
    timeout: PROBE_MS_MAX,
    maxBuffer: PROBE_OUTPUT_BYTES_MAX,
    ...spawnAs,
  });
  if (error !== undefined) return error.message;
  return status === 0 ? null : stderr.trim().split("\n")[0] || `exit ${status}`;
}

const PROBE_MS_MAX = 10_000;
const PROBE_OUTPUT_BYTES_MAX = 4 * 1024 * 1024;

// 65534 on Linux, -2 as an unsigned number on macOS.
function idOf(flag: "-u" | "-g"): number {
  return Number(execFileSync("id", [flag, "nobody"], { encoding: "utf8" }));
}
