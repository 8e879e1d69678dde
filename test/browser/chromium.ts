import { chromium } from "playwright-core";
import type { Browser } from "playwright-core";
import { findExecutable } from "../support/executables.ts";

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
  return findExecutable(env, { variable: "CHROMIUM_PATH", names: NAMES, missing: MISSING });
}

const NAMES = ["chromium", "chromium-browser", "google-chrome"];
const MISSING = [
  `this test opens a real browser and found none of ${NAMES.join(", ")} on PATH:`,
  "install one (Debian, Ubuntu: apt-get install chromium; macOS: brew install --cask chromium)",
  "or set CHROMIUM_PATH to the executable",
].join("\n");
