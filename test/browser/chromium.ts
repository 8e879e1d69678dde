import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";
import type { Browser } from "playwright-core";

/** Starts the system's Chromium without a window. */
export async function launchChromium(): Promise<Browser> {
  const isRoot = process.getuid?.() === 0;
  return await chromium.launch({
    executablePath: findChromium(process.env),
    // Chromium's sandbox refuses to run as root, as in a container; the pages are our own.
    args: isRoot ? ["--no-sandbox"] : [],
  });
}

/** `CHROMIUM_PATH`, else the first of the usual names on PATH. */
export function findChromium(env: NodeJS.ProcessEnv): string {
  const named = env["CHROMIUM_PATH"] ?? "";
  if (named !== "") {
    if (isExecutable(named)) return named;
    throw new Error(`CHROMIUM_PATH names no executable file: ${named}`);
  }
  const folders = (env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  const found = NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find(
    isExecutable,
  );
  if (found === undefined) throw new Error(MISSING);
  return found;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const NAMES = ["chromium", "chromium-browser", "google-chrome"];
const MISSING = [
  `this test opens a real browser and found none of ${NAMES.join(", ")} on PATH:`,
  "install one (Debian, Ubuntu: apt-get install chromium; macOS: brew install --cask chromium)",
  "or set CHROMIUM_PATH to the executable",
].join("\n");
