import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { pidOf, processesOf, stackOf, startedDev, waitUntil } from "../support/dev-stack.ts";
import type { DevRun } from "../support/dev-stack.ts";

/** `remit demo` as a user meets it: real processes are frozen and killed, and each claim is checked by the demo itself. */

jest.setTimeout(240_000);

const REMIT = join(import.meta.dirname, "..", "..", "bin", "remit.mjs");

let parent: string;
let dataDir: string;
let dev: DevRun;
const ours = new Set<number>();

beforeAll(async () => {
  parent = mkdtempSync(join(tmpdir(), "remit-demo-"));
  dataDir = join(parent, "data");
  dev = await startedDev(dataDir);
  for (const { pid } of stackOf(dataDir).processes) ours.add(pid);
}, 120_000);

afterAll(async () => {
  dev.child.kill("SIGTERM");
  await dev.exitCode;
  await nothingRunsIn(dataDir);
  rmSync(parent, { recursive: true, force: true });
}, 60_000);

interface Run {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly code: Promise<number | null>;
}

function run(words: readonly string[], { dir = dataDir, env = process.env } = {}): Run {
  const child = spawn(process.execPath, [REMIT, ...words, "--data-dir", dir], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (chunk) => (text += String(chunk)));
  const code = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, out: () => text, code };
}

async function remit(...words: string[]): Promise<{ code: number | null; out: string }> {
  const started = run(words);
  return { code: await started.code, out: started.out() };
}

async function nothingRunsIn(dir: string, known: readonly number[] = [...ours]): Promise<void> {
  await waitUntil("no process of the stack is left", () => processesOf(dir, known).length === 0);
}

async function asOwner(...statements: string[]): Promise<void> {
  const client = new Client({ connectionString: stackOf(dataDir).adminDatabaseUrl });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

const brokerIsFrozen = (): boolean =>
  /\) T /.test(readFileSync(`/proc/${pidOf(dataDir, "broker")}/stat`, "utf8"));

describe("remit demo on a running stack", () => {
  test("plays every scenario in turn, proves each, and ends each with all invariants", async () => {
    const { code, out } = await remit("demo", "--scenario", "all");
    for (const { pid } of stackOf(dataDir).processes) ours.add(pid);

    expect({ code, out }).toMatchObject({ code: 0 });
    const chapters = [...out.matchAll(/^── ([a-z-]+): /gm)].map(([, name]) => name);
    expect(chapters).toEqual([
      "happy",
      "replay",
      "no-funds",
      "closed-account",
      "duplicate",
      "outage",
      "crash",
    ]);
    expect(out.match(/ok: 10 of 10 invariants hold/g)).toHaveLength(chapters.length);
    for (const promise of [
      /replayed +payment \S+, nothing moved/,
      /remembered the same key gets the same refusal/,
      /failed +the payment failed with account_closed, its hold is released/,
      /absorbed +delivered twice, booked once/,
      /accepted +20 payments by now; remit outbox status: 20 pending/,
      /waiting +remit relay status: outbox-relay:0-63 running \(waits: /,
      /drained +40 events/,
      /published twice, delivered (twice|\d times), booked once, \+12\.50 EUR/,
    ]) {
      expect(out).toMatch(promise);
    }
    const [, paymentId] = /\$ remit payment explain (\S+)/.exec(out) ?? [];
    const explained = await remit("payment", "explain", paymentId ?? "");
    expect(explained.code).toBe(0);
    expect(explained.out).toMatch(/booked +once, by ledger transaction/);
    expect(explained.out).toContain("claimed twice, so it may have been sent as often");
  });

  test("says with --json what it saw of a crash: two claims, two deliveries, one booking", async () => {
    const { code, out } = await remit("demo", "--scenario", "crash", "--json");
    for (const { pid } of stackOf(dataDir).processes) ours.add(pid);

    const story = JSON.parse(out) as { ok: boolean; events: { step: string; facts: object }[] };
    expect({ code, ok: story.ok }).toEqual({ code: 0, ok: true });
    const { facts = {} } = story.events.find(({ step }) => step === "result") ?? {};
    expect(facts).toMatchObject({ claims: 2, transactions: 1, creditedMinor: "1250" });
    expect((facts as { deliveries: number }).deliveries).toBeGreaterThanOrEqual(2);
    expect(story.events.find(({ step }) => step === "quoted")?.facts).toMatchObject({
      story: { status: "settled", isStuck: false },
    });
  });

  test("exits 6 where a claim doesn't hold, and says which", async () => {
    const bend = (by: string): string[] => [
      "SET session_replication_role = replica",
      `UPDATE remit.accounts SET posted = posted ${by} WHERE id = 'bob'`,
    ];
    await asOwner(...bend("+ 1"));
    const { code, out } = await remit("demo", "--scenario", "no-funds", "--json");
    await asOwner(...bend("- 1"));

    const story = JSON.parse(out) as Record<string, unknown>;
    expect(code).toBe(6);
    expect(story).toMatchObject({ ok: false, problem: { code: "verify" } });
    expect(JSON.stringify(story["problem"])).toContain("bob");
  });

  test.each(["SIGINT", "SIGKILL"] as const)(
    "leaves no frozen broker behind when %s ends it amid an outage",
    async (signal) => {
      const demo = run(["demo", "--scenario", "outage"]);
      await waitUntil("the broker is frozen", brokerIsFrozen);
      demo.child.kill(signal);

      expect(await demo.code).toBe(signal === "SIGINT" ? 130 : null);
      await waitUntil("the broker goes on", () => !brokerIsFrozen(), 5_000);
    },
  );

  test("refuses any other target than the embedded stack", async () => {
    const child = spawn(process.execPath, [REMIT, "demo", "--json"], {
      cwd: parent,
      env: { PATH: process.env["PATH"], DATABASE_URL: stackOf(dataDir).databaseUrl },
      stdio: ["ignore", "pipe", "ignore"],
    });
    let out = "";
    child.stdout.on("data", (chunk) => (out += String(chunk)));
    expect(await new Promise((resolve) => child.once("close", resolve))).toBe(2);
    expect(JSON.parse(out)).toMatchObject({ code: "usage" });
  });
});

describe("remit payment explain", () => {
  test("tells a refused request by its key, and a payment by its own, while Temporal stands still", async () => {
    const pay = ["pay", "--from", "bob", "--to", "shop", "--currency", "EUR", "--amount"];
    await remit(...pay, "999999.00", "--key", "too-much");
    await remit(...pay, "1.00", "--key", "affordable", "--wait");
    const temporal = pidOf(dataDir, "temporal");
    process.kill(temporal, "SIGSTOP");
    try {
      const refused = await remit("payment", "explain", "--key", "too-much");
      const settled = await remit("payment", "explain", "--key", "affordable");

      expect([refused.code, settled.code]).toEqual([0, 0]);
      expect(refused.out).toContain("key too-much of merchant default: a pay, refused");
      expect(refused.out).toContain("insufficient_funds");
      expect(settled.out).toContain("nothing: it is settled, and that never changes");
    } finally {
      process.kill(temporal, "SIGCONT");
    }
  });

  test.each([
    [["01a20000-0000-7000-8000-000000000000"], 3, "payment_not_found"],
    [["nonsense"], 3, "payment_not_found"],
    [["--key", "never-used"], 3, "payment_not_found"],
    [[], 2, "usage"],
    [["nonsense", "--key", "both"], 2, "usage"],
    [["nonsense", "--merchant", "acme"], 2, "usage"],
  ])("answers %j with exit %d %s", async (words, exit, problem) => {
    const { code, out } = await remit("payment", "explain", ...words, "--json");
    expect(code).toBe(exit);
    expect(JSON.parse(out)).toMatchObject({ code: problem });
  });
});

describe("remit demo where no stack runs", () => {
  test("starts one, plays, ends it, and leaves no process", async () => {
    const dir = join(parent, "own");
    const own = run(["demo", "--scenario", "happy"], { dir });
    const known = new Set<number>();
    await waitUntil("its stack is there", () => {
      if (own.child.exitCode !== null) return true;
      if (!existsSync(join(dir, "stack.json"))) return false;
      for (const { pid } of stackOf(dir).processes) known.add(pid);
      return true;
    });

    expect({ code: await own.code, out: own.out() }).toMatchObject({ code: 0 });
    for (const stage of ["recorded", "published", "delivered", "booked", "settled", "verified"]) {
      expect(own.out()).toMatch(new RegExp(`ms  ${stage}`));
    }
    expect(known.size).toBe(4);
    expect(existsSync(join(dir, "stack.json"))).toBe(false);
    await nothingRunsIn(dir, [...known]);
  });
});
