import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pidOf, processesOf, startedDev, stackOf, waitUntil } from "../support/dev-stack.ts";
import type { DevRun } from "../support/dev-stack.ts";

/** A payment file runs while every process of the stack is killed in turn, and then all of it. */

jest.setTimeout(420_000);

const LINES = 90;
const CHILDREN = ["worker", "postgres", "temporal", "broker"];
const BETWEEN_KILLS_MS = 2_500;
const REMIT = join(import.meta.dirname, "..", "..", "bin", "remit.mjs");

let parent: string;
let dataDir: string;
let dev: DevRun | undefined;
const ours = new Set<number>();

beforeAll(() => {
  parent = mkdtempSync(join(tmpdir(), "remit-plug-"));
  dataDir = join(parent, "data");
});
afterAll(async () => {
  dev?.child.kill("SIGINT");
  await dev?.exitCode;
  await waitUntil(
    "no process of the stack is left",
    () => processesOf(dataDir, [...ours]).length === 0,
  );
  rmSync(parent, { recursive: true, force: true });
});

async function start(): Promise<void> {
  dev = await startedDev(dataDir);
  for (const { pid } of stackOf(dataDir).processes) ours.add(pid);
}

async function remit(
  ...words: string[]
): Promise<{ code: number | null; lines: Record<string, unknown>[] }> {
  const child = spawn(process.execPath, [REMIT, ...words, "--json", "--data-dir", dataDir], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.on("data", (text) => (output += String(text)));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  const lines = output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { code, lines };
}

async function balanceOf(account: string): Promise<bigint> {
  const { lines } = await remit("account", "get", account);
  return BigInt(String(lines[0]?.["postedMinor"]));
}

test("kill -9 of each process amid a payment file, and of remit dev: every line is paid exactly once", async () => {
  const file = join(parent, "payments.csv");
  const rows = Array.from({ length: LINES }, (_, index) => `plug-${index},alice,shop,1.00,EUR`);
  writeFileSync(file, ["key,from,to,amount,currency", ...rows].join("\n"));
  await start();
  const before = await balanceOf("shop");

  const first = remit("pay", "--file", file);
  for (const name of CHILDREN) {
    await delay(BETWEEN_KILLS_MS);
    const pid = pidOf(dataDir, name);
    process.kill(pid, "SIGKILL");
    await waitUntil(`${name} is back`, () => pidOf(dataDir, name) !== pid);
    ours.add(pidOf(dataDir, name));
  }
  await delay(BETWEEN_KILLS_MS);
  dev?.child.kill("SIGKILL");
  await dev?.exitCode;
  await start();
  await first;
  const again = await remit("pay", "--file", file);
  const verified = await remit("verify", "--grace", "0s");

  expect(again.code).toBe(0);
  expect(again.lines.map(({ line }) => line).toSorted((a, b) => Number(a) - Number(b))).toEqual(
    rows.map((_, index) => index + 2),
  );
  expect(new Set(again.lines.map(({ status }) => status))).toEqual(new Set(["settled"]));
  expect(new Set(again.lines.map(({ paymentId }) => paymentId)).size).toBe(LINES);
  expect((await balanceOf("shop")) - before).toBe(BigInt(LINES * 100));
  expect(verified.lines[0]).toMatchObject({ ok: true });
});
