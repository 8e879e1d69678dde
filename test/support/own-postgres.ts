import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** A server of a test file's own: what is set on a server befalls every database of it. */
export interface OwnPostgres {
  /** The superuser's URL of its empty database `remit`. */
  readonly adminUrl: string;
  readonly stop: () => Promise<void>;
}

interface Stoppable extends OwnPostgres {
  readonly stop: (options?: { keep?: boolean }) => Promise<void>;
}

/** A primary and a hot standby that streams from it. */
export interface OwnPair {
  readonly primary: OwnPostgres;
  readonly standby: OwnPostgres;
}

export async function startOwnPostgres(): Promise<OwnPostgres> {
  return await startIn(newDir());
}

/** The standby is a copy of the primary's folder, made while that was stopped. */
export async function startOwnPair(): Promise<OwnPair> {
  const [primaryDir, standbyDir] = [newDir(), newDir()];
  const first = await startIn(primaryDir);
  await first.stop({ keep: true });
  execFileSync("cp", ["-a", join(primaryDir, "data"), standbyDir]);
  const primary = await startIn(primaryDir);
  const { hostname, port, username, password } = new URL(primary.adminUrl);
  const source = `host=${hostname} port=${port} user=${username} password=${password}`;
  appendFileSync(
    join(standbyDir, "data", "postgresql.auto.conf"),
    `primary_conninfo = '${source}'\n`,
  );
  writeFileSync(join(standbyDir, "data", "standby.signal"), "");
  return { primary, standby: await startIn(standbyDir) };
}

function newDir(): string {
  return mkdtempSync(join(tmpdir(), "remit-postgres-"));
}

/** By a process of its own, since jest can't load the package that brings the server. */
async function startIn(dir: string): Promise<Stoppable> {
  const child = fork(resolve("test/support/own-postgres-main.ts"), [dir]);
  const exited = once(child, "exit");
  const adminUrl = await Promise.race([
    once(child, "message").then(([url]) => String(url)),
    exited.then(([code]) => Promise.reject(new Error(`PostgreSQL did not start (${code})`))),
  ]);
  return {
    adminUrl,
    stop: async ({ keep = false } = {}) => {
      child.disconnect();
      await exited;
      if (!keep) rmSync(dir, { recursive: true });
    },
  };
}
