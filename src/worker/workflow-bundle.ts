import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rename, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { bundleWorkflowCode } from "@temporalio/worker";
import type { Logger as TemporalLogger } from "@temporalio/worker";

const SOURCE_DIR = fileURLToPath(new URL("../", import.meta.url));
const LOCK_FILE = fileURLToPath(new URL("../../package-lock.json", import.meta.url));
const CACHE_DIR = fileURLToPath(new URL("../../node_modules/.cache/remit/", import.meta.url));

/** What the workflow code is made of: a change in any of it, or in a dependency, makes another bundle. */
const BUNDLED_FOLDERS = ["workflows", "domain"];

/**
 * The workflow code as one script. Bundling takes seconds, so it is kept under the hash of its sources; where the
 * folder can't be written, it is made anew each time.
 */
export async function workflowBundle(logger: TemporalLogger): Promise<{ code: string }> {
  const path = await cachePath();
  const kept = await readFile(path, "utf8").catch(() => null);
  if (kept !== null) return { code: kept };
  const code = await makeBundle(logger);
  await keep(path, code).catch(() => undefined);
  return { code };
}

/** Makes the bundle ahead of the first start, for an image whose user can't write there; returns its path. */
export async function keepWorkflowBundle(logger: TemporalLogger): Promise<string> {
  const path = await cachePath();
  await keep(path, await makeBundle(logger));
  return path;
}

async function cachePath(): Promise<string> {
  return join(CACHE_DIR, `workflows-${await hashOfSources()}.js`);
}

async function makeBundle(logger: TemporalLogger): Promise<string> {
  const { code } = await bundleWorkflowCode({
    workflowsPath: join(SOURCE_DIR, "workflows", "workflows.ts"),
    logger,
  });
  return code;
}

async function keep(path: string, code: string): Promise<void> {
  await mkdir(CACHE_DIR, { recursive: true });
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, code);
  await rename(draft, path);
}

async function hashOfSources(): Promise<string> {
  const hash = createHash("sha256").update(await readFile(LOCK_FILE).catch(() => ""));
  for (const folder of BUNDLED_FOLDERS) {
    const names = (await readdir(join(SOURCE_DIR, folder))).toSorted();
    for (const name of names) {
      hash.update(name).update(await readFile(join(SOURCE_DIR, folder, name)));
    }
  }
  return hash.digest("hex").slice(0, 32);
}
