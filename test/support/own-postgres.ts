import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** A server of a test file's own: what is set on a server befalls every database of it. */
export interface OwnPostgres {
  /** The superuser's URL of its empty database `remit`. */
  readonly adminUrl: string;
  readonly stop: () => Promise<void>;
}

/** By a process of its own, since jest can't load the package that brings the server. */
export async function startOwnPostgres(): Promise<OwnPostgres> {
  const dir = mkdtempSync(join(tmpdir(), "remit-postgres-"));
  const child = fork(resolve("test/support/own-postgres-main.ts"), [dir]);
  const exited = once(child, "exit");
  const adminUrl = await Promise.race([
    once(child, "message").then(([url]) => String(url)),
    exited.then(([code]) => Promise.reject(new Error(`PostgreSQL did not start (${code})`))),
  ]);
  return {
    adminUrl,
    stop: async () => {
      child.disconnect();
      await exited;
      rmSync(dir, { recursive: true });
    },
  };
}
