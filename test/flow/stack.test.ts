import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  pidOf,
  processesOf,
  runDev,
  stackOf,
  startedDev,
  waitUntil,
} from "../support/dev-stack.ts";
import type { DevRun } from "../support/dev-stack.ts";

/** The stack as a user meets it: processes, ports, signals. Each test goes on with the folder of the one before. */

jest.setTimeout(240_000);

const CHILDREN = ["postgres", "temporal", "broker", "worker"];
const GONE_MS_MAX = 20_000;

let parent: string;
let dataDir: string;
let dev: DevRun | undefined;
const ours = new Set<number>();

beforeAll(() => {
  parent = mkdtempSync(join(tmpdir(), "remit-stack-"));
  dataDir = join(parent, "data");
});

afterAll(async () => {
  if (dev !== undefined && dev.child.exitCode === null) dev.child.kill("SIGKILL");
  await nothingRuns();
  rmSync(parent, { recursive: true, force: true });
});

async function start(): Promise<DevRun> {
  const started = await startedDev(dataDir);
  for (const { pid } of stackOf(dataDir).processes) ours.add(pid);
  return started;
}

async function nothingRuns(): Promise<void> {
  await waitUntil(
    "no process of the stack is left",
    () => processesOf(dataDir, [...ours]).length === 0,
    GONE_MS_MAX,
  );
}

describe("remit dev", () => {
  test("--once starts everything, plays the demo payment, stops, and leaves no process", async () => {
    const once = runDev(dataDir, "--once");

    expect({ code: await once.exitCode, output: once.output() }).toMatchObject({ code: 0 });
    for (const part of ["postgres 18", "temporal", "broker", "worker"]) {
      expect(once.output()).toMatch(new RegExp(`✓ ${part}.* \\d+\\.\\d s`));
    }
    for (const stage of ["recorded", "published", "delivered", "booked", "settled"]) {
      expect(once.output()).toContain(stage);
    }
    expect(existsSync(join(dataDir, "stack.json"))).toBe(false);
    await nothingRuns();
  });

  test("says where everything is, on loopback, and to whom stack.json belongs", async () => {
    dev = await start();

    const stack = stackOf(dataDir);
    expect(stack.pid).toBe(dev.child.pid);
    expect(stack.processes.map(({ name }) => name).toSorted()).toEqual(CHILDREN.toSorted());
    for (const { pid } of stack.processes) expect(dev.output()).toContain(`pid ${pid}`);
    for (const url of [stack.databaseUrl, stack.temporalUiUrl, stack.awsEndpointUrl]) {
      expect(new URL(url).hostname).toBe("127.0.0.1");
    }
    expect(dev.output()).not.toContain(new URL(stack.databaseUrl).password);
  });

  test("refuses a second one on the same folder and says where the first is", async () => {
    const second = runDev(dataDir);

    expect(await second.exitCode).toBe(4);
    expect(second.output()).toContain(String(dev?.child.pid));
    expect(second.output()).toContain(stackOf(dataDir).temporalUiUrl);
    expect(dev?.child.exitCode).toBeNull();
  });

  test.each(CHILDREN)("starts %s again in the same place after a kill -9", async (name) => {
    const before = stackOf(dataDir);
    const killed = pidOf(dataDir, name);

    process.kill(killed, "SIGKILL");
    const isSaid = (): boolean =>
      dev?.output().includes(`${name} runs again, pid ${pidOf(dataDir, name)}`) ?? false;
    await waitUntil(`${name} runs again`, () => pidOf(dataDir, name) !== killed && isSaid());

    const after = stackOf(dataDir);
    ours.add(pidOf(dataDir, name));
    expect({ ...after, processes: [] }).toEqual({ ...before, processes: [] });
    expect(dev?.output()).toContain(`${name} (pid ${killed}) ended with SIGKILL`);
  });

  test("its children go with it after a kill -9, and the next start works", async () => {
    dev?.child.kill("SIGKILL");
    await nothingRuns();

    dev = await start();
    expect(stackOf(dataDir).pid).toBe(dev.child.pid);
  });

  test("starts after everything was killed with -9 at once", async () => {
    for (const pid of processesOf(dataDir, [...ours])) process.kill(pid, "SIGKILL");
    await nothingRuns();

    dev = await start();
    expect(stackOf(dataDir).pid).toBe(dev.child.pid);
  });

  test("stops in order on SIGTERM and leaves no process", async () => {
    dev?.child.kill("SIGTERM");

    expect(await dev?.exitCode).toBe(0);
    expect(existsSync(join(dataDir, "stack.json"))).toBe(false);
    await nothingRuns();
  });

  test("refuses a folder that holds other files, and touches none of them", async () => {
    const other = mkdtempSync(join(parent, "other-"));
    writeFileSync(join(other, "thesis.txt"), "");

    const refused = runDev(other, "--fresh");

    expect(await refused.exitCode).toBe(2);
    expect(existsSync(join(other, "thesis.txt"))).toBe(true);
  });
});
