import { randomBytes } from "node:crypto";
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { DomainError } from "../domain/errors.ts";

/** Where things lie in a data folder. */
export interface DataDir {
  readonly path: string;
  readonly postgres: string;
  readonly temporal: string;
  readonly broker: string;
  readonly logs: string;
  readonly processes: string;
  readonly portsFile: string;
  readonly stackFile: string;
  readonly secretsFile: string;
}

export interface Secrets {
  readonly postgresPassword: string;
  readonly remitPassword: string;
}

const MARKER = "remit-data-folder";
const LOCK = "lock";

/**
 * Creates the folder, or takes one that Remit created.
 *
 * @throws DomainError `usage` for a folder that holds other things or that can't be written
 */
export function openDataDir(directory: string): DataDir {
  const path = resolve(directory);
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    if (!existsSync(join(path, MARKER))) {
      assertEmpty(path);
      writeFileSync(join(path, MARKER), "Everything in this folder belongs to remit dev.\n");
    }
    accessSync(path, constants.W_OK);
  } catch (error) {
    if (error instanceof DomainError) throw error;
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new DomainError(
      "usage",
      `${path}: expected a folder that can be written, found ${reason}; choose another one with --data-dir`,
      { cause: error },
    );
  }
  return {
    path,
    postgres: join(path, "postgres"),
    temporal: join(path, "temporal"),
    broker: join(path, "broker"),
    logs: join(path, "logs"),
    processes: join(path, "processes"),
    portsFile: join(path, "ports.json"),
    stackFile: join(path, "stack.json"),
    secretsFile: join(path, "secrets.json"),
  };
}

/**
 * Takes the folder for this process; false when another one has it. The lock is the kernel's, on a file: it goes with
 * its process however that dies, so there is no stale lock and no process id that could belong to somebody else.
 */
export function lockDataDir({ path }: DataDir): { release: () => void } | null {
  const database = new DatabaseSync(join(path, LOCK));
  try {
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY) return null;
    throw error;
  }
  return { release: () => database.close() };
}

/** Removes everything but the lock, which the caller holds, and the marker. */
export function emptyDataDir({ path }: DataDir): void {
  const kept = new Set([MARKER, LOCK, `${LOCK}-journal`]);
  for (const name of readdirSync(path)) {
    if (!kept.has(name)) rmSync(join(path, name), { recursive: true, force: true });
  }
}

/** The passwords of this folder's database, made at its first start; readable by the owner alone. */
export function secretsOf({ secretsFile }: DataDir): Secrets {
  if (!existsSync(secretsFile)) {
    const password = (): string => randomBytes(24).toString("base64url");
    writeWhole(secretsFile, { postgresPassword: password(), remitPassword: password() });
  }
  return JSON.parse(readFileSync(secretsFile, "utf8")) as Secrets;
}

/** Writes JSON so that a reader sees the old content or the new one, never a part, and nobody else sees any. */
export function writeWhole(file: string, content: object): void {
  const temporary = `${file}.${process.pid}.tmp`;
  writeFileSync(temporary, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
  renameSync(temporary, file);
}

function assertEmpty(path: string): void {
  if (!statSync(path).isDirectory() || readdirSync(path).length > 0) {
    throw new DomainError(
      "usage",
      `${path}: expected an empty folder or one that remit dev made, found other files; choose another one with --data-dir`,
    );
  }
}

// https://sqlite.org/rescode.html#busy
const SQLITE_BUSY = 5;
