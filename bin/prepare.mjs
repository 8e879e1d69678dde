// Plain JavaScript for any Node >= 20.20 with nothing installed: installs what is missing, then runs a TypeScript file.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  existsSync,
  lstatSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
} from "node:fs";
import { writeFileSync } from "node:fs";
import module from "node:module";
import { constants, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { setTimeout as delay } from "node:timers/promises";

const ROOT = resolve(import.meta.dirname, "..");
const LOCK_FILE = join(ROOT, "package-lock.json");
const STAMP = join(ROOT, "node_modules", ".remit-lock-hash");
/** The first Node that strips types by itself. */
const NODE_MIN = [22, 18];
const LOOK_AGAIN_MS = 300;
/** Not in Node 20, which only starts the newer one. */
const { enableCompileCache } = module;
// NODE_ENV=production would leave out the embedded servers. Warnings name packages that run under the new Node anyway.
const CI = ["ci", "--include=dev", "--include=optional", "--loglevel=error"];

/** Runs a TypeScript file of this repository as the program, with everything that it needs installed. */
export async function runPrepared(file, args) {
  await installWhatIsMissing();
  keepCompiledCode();
  const target = resolve(file);
  if (isNewEnough(process.versions.node)) {
    process.argv = [process.execPath, target, ...args];
    await import(pathToFileURL(target).href);
    return;
  }
  await runUnderNewNode(target, args);
}

/** A start compiles some thousand modules, a quarter of its time: kept for the next one, here and in every child. */
function keepCompiledCode() {
  process.env.NODE_COMPILE_CACHE ??= join(ROOT, "node_modules", ".cache", "remit", "compiled");
  enableCompileCache?.();
}

async function installWhatIsMissing() {
  if (isInstalled()) return;
  refuseLinkedFolder();
  const release = await takeInstallLock();
  try {
    // Whoever had the lock before may have done the work.
    if (isInstalled()) return;
    await install();
  } finally {
    release();
  }
}

/**
 * The stamp says for which lock file node_modules was made; times of a clone or a copy say nothing. Without a stamp npm's
 * own record counts: somebody ran npm by hand.
 */
function isInstalled() {
  const hash = createHash("sha256").update(readFileSync(LOCK_FILE)).digest("hex");
  if (existsSync(STAMP) && readFileSync(STAMP, "utf8") === hash) return true;

  const npmRecord = join(ROOT, "node_modules", ".package-lock.json");
  if (!existsSync(npmRecord)) return false;
  if (statSync(npmRecord).mtimeMs < statSync(LOCK_FILE).mtimeMs) return false;
  writeStamp(hash);
  return true;
}

function writeStamp(hash) {
  try {
    writeFileSync(STAMP, hash);
  } catch {
    // Somebody else's checkout that we may only read: npm's record decides the next time as well.
  }
}

/** npm ci follows a link and empties the folder behind it, which is another project's. */
function refuseLinkedFolder() {
  const folder = join(ROOT, "node_modules");
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return;
  say(`${folder} is a link, and what it leads to is older than package-lock.json.`);
  say(
    "To fix it: remove the link and run the same command again, or run npm ci where it leads to.",
  );
  process.exit(1);
}

async function install() {
  const started = Date.now();
  say("installing the dependencies (npm ci, once)");
  const npm = npmCommand();
  const status = await new Promise((finish, fail) => {
    const child = spawn(npm.command, [...npm.args, ...CI], {
      cwd: ROOT,
      env: environmentForNpm(),
      // npm asks nothing when it has no terminal to read from; what it says is progress, not our output.
      stdio: ["ignore", 2, 2],
    });
    child.once("error", fail);
    child.once("exit", (code, signal) => finish(signal ?? code));
  }).catch((error) => error.message);
  if (status !== 0) {
    say(`npm ci failed (${status}) in ${ROOT}; what it said stands above.`);
    say(
      "To fix it: check that npm reaches its registry (npm ping), that the folder can be written",
    );
    say("and that the disk isn't full, then run the same command again.");
    process.exit(1);
  }
  writeStamp(createHash("sha256").update(readFileSync(LOCK_FILE)).digest("hex"));
  say(`dependencies installed in ${Math.round((Date.now() - started) / 1000)} s`);
}

// npm run and npx name the npm that they are; otherwise the one on PATH.
function npmCommand() {
  const script = process.env.npm_execpath;
  if (script?.endsWith("npm-cli.js") && existsSync(script)) {
    return { command: process.execPath, args: [script] };
  }
  return { command: "npm", args: [] };
}

// What an outer npm tells its script about that run would be options of the inner one.
function environmentForNpm() {
  const inherited =
    /^npm_(lifecycle_|package_|command$|config_(call|package|yes|workspace|prefix|local_prefix|omit|include|production))/i;
  const kept = Object.entries(process.env).filter(([name]) => !inherited.test(name));
  return Object.fromEntries(kept);
}

/** Two npm ci in one folder would delete each other's files. The lock of a process that died doesn't count. */
async function takeInstallLock() {
  const name = createHash("sha256").update(ROOT).digest("hex").slice(0, 16);
  const lock = join(tmpdir(), `remit-install-${process.getuid?.() ?? 0}-${name}`);
  for (let announced = false; ; announced = true) {
    try {
      const descriptor = openSync(lock, "wx", 0o600);
      writeFileSync(descriptor, String(process.pid));
      closeSync(descriptor);
      return () => rmSync(lock, { force: true });
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    if (isStale(lock)) rmSync(lock, { force: true });
    else if (!announced) say("waiting for another installation in this folder");
    await delay(LOOK_AGAIN_MS);
  }
}

function isStale(lock) {
  try {
    const pid = Number(readFileSync(lock, "utf8"));
    if (pid === 0) return Date.now() - statSync(lock).mtimeMs > 5_000; // Died between creating and writing.
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error.code === "ESRCH";
  }
}

function isNewEnough(version) {
  const [major, minor] = version.split(".").map(Number);
  return major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
}

/** The new Node is a child; what happens to this process happens to it. */
async function runUnderNewNode(target, args) {
  const node = join(ROOT, "node_modules", "node", "bin", "node");
  const found = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (found.status !== 0 || !isNewEnough(found.stdout.trim().slice(1))) {
    say(
      `this is Node ${process.versions.node}; Node >= ${NODE_MIN.join(".")} is needed, and the copy`,
    );
    say(`that the npm package "node" brings doesn't run: ${node}`);
    say("To fix it: remove node_modules and run the same command again with npm's install scripts");
    say("allowed (npm config get ignore-scripts must say false), or install Node 24.");
    process.exit(1);
  }

  const watch = pathToFileURL(join(import.meta.dirname, "end-with-parent.mjs")).href;
  const child = spawn(node, ["--import", watch, target, ...args], {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  process.on("SIGINT", () => {
    // A terminal sends Ctrl-C to both; a second one would cut the child's orderly end short.
    if (!process.stdin.isTTY) child.kill("SIGINT");
  });
  const { code, signal } = await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  process.exitCode = signal === null ? code : 128 + constants.signals[signal];
}

function say(line) {
  process.stderr.write(`remit: ${line}\n`);
}
