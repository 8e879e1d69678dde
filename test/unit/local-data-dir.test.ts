import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emptyDataDir, lockDataDir, openDataDir, secretsOf } from "../../src/local/data-dir.ts";

let parent: string;
beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), "remit-data-"));
});
afterEach(() => rmSync(parent, { recursive: true, force: true }));

describe("a data folder", () => {
  test("is made where there is none, for its owner alone", () => {
    const { path } = openDataDir(join(parent, "a", "b"));

    expect(statSync(path).mode & 0o777).toBe(0o700);
  });

  test("is refused where a folder holds other files, and they stay", () => {
    writeFileSync(join(parent, "thesis.txt"), "");

    expect(() => openDataDir(parent)).toThrow(
      /expected an empty folder or one that remit dev made/,
    );
    expect(existsSync(join(parent, "thesis.txt"))).toBe(true);
  });

  test("is refused where it is a file", () => {
    writeFileSync(join(parent, "file"), "");

    expect(() => openDataDir(join(parent, "file"))).toThrow(/--data-dir/);
  });

  test("is locked once, and free again after the release", () => {
    const dataDir = openDataDir(join(parent, "a"));
    const lock = lockDataDir(dataDir);

    expect(lockDataDir(dataDir)).toBeNull();
    lock?.release();
    const again = lockDataDir(dataDir);
    expect(again).not.toBeNull();
    again?.release();
  });

  test("emptied, it is still a data folder and still locked", () => {
    const dataDir = openDataDir(join(parent, "a"));
    const lock = lockDataDir(dataDir);
    mkdirSync(dataDir.postgres);

    emptyDataDir(dataDir);

    expect(existsSync(dataDir.postgres)).toBe(false);
    expect(lockDataDir(openDataDir(dataDir.path))).toBeNull();
    lock?.release();
  });

  test("keeps its passwords, readable by the owner alone", () => {
    const dataDir = openDataDir(join(parent, "a"));
    const secrets = secretsOf(dataDir);

    expect(secretsOf(dataDir)).toEqual(secrets);
    expect(statSync(dataDir.secretsFile).mode & 0o777).toBe(0o600);
    expect(secrets.postgresPassword).not.toBe(secrets.remitPassword);
  });
});
