import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { inheritedEnvironment } from "../../src/local/environment.ts";
import { eventually } from "./eventually.ts";

/** `remit worker` as an operator runs it, with its probes. */
export interface WorkerProcess {
  readonly child: ChildProcess;
  readonly log: () => string;
  /** Exit code, or the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals | null>;
  probe(path: "/livez" | "/readyz"): Promise<Probe>;
  /** Where probes and scrapes are answered. */
  readonly url: () => string;
  /** The page of `/metrics`. */
  scrape(): Promise<string>;
}

export interface Probe {
  readonly status: number;
  readonly ok: boolean;
  readonly reasons: Readonly<Record<string, string>>;
  readonly red: readonly string[];
}

export interface WorkerProcesses {
  start(words?: readonly string[], env?: Readonly<Record<string, string>>): Promise<WorkerProcess>;
  end(): Promise<void>;
}

const MAIN = resolve("src/cli/main.ts");

/** Starts `remit worker --health-port 0 …`; whoever asks for one gets it as soon as it answers probes. */
export function workerProcesses(main = MAIN): WorkerProcesses {
  const dir = mkdtempSync(join(tmpdir(), "remit-worker-"));
  const running = new Set<WorkerProcess>();
  return {
    start: async (words = [], env = {}) => {
      const worker = spawnWorker(main, { dir, words, env });
      running.add(worker);
      let hasEnded = false;
      void worker.ended.then(() => (hasEnded = true));
      await eventually(
        async () => {
          if (!hasEnded) await worker.probe("/livez");
        },
        { timeoutMs: 60_000 },
      );
      if (hasEnded) throw new Error(`remit worker ended:\n${worker.log()}`);
      return worker;
    },
    end: async () => {
      for (const { child } of running) child.kill("SIGKILL");
      await Promise.all([...running].map(async ({ ended }) => await ended));
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Waits until every check of its roles holds. */
export async function untilReady(worker: WorkerProcess): Promise<void> {
  await eventually(
    async () => expect(await worker.probe("/readyz")).toMatchObject({ status: 200, red: [] }),
    { timeoutMs: 60_000 },
  );
}

function spawnWorker(
  main: string,
  {
    dir,
    words,
    env,
  }: { dir: string; words: readonly string[]; env: Readonly<Record<string, string>> },
): WorkerProcess {
  const child = spawn(process.execPath, [main, "worker", "--health-port", "0", ...words], {
    cwd: dir,
    env: { ...inheritedEnvironment(), HOME: dir, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => (text += String(chunk)));
  }
  const ended = new Promise<number | NodeJS.Signals | null>((settle) => {
    child.once("close", (code, signal) => settle(code ?? signal));
  });
  const url = (): string => {
    const found = /"url":"(http:[^"]+)"/.exec(text)?.[1];
    if (found === undefined || child.exitCode !== null) {
      throw new Error(`no probes are answered:\n${text}`);
    }
    return found;
  };
  const get = async (path: string): Promise<Response> =>
    await fetch(`${url()}${path}`, { signal: AbortSignal.timeout(5_000) });
  return {
    child,
    log: () => text,
    ended,
    url,
    probe: async (path) => {
      const response = await get(path);
      return { status: response.status, ...readReport(await response.json()) };
    },
    scrape: async () => await (await get("/metrics")).text(),
  };
}

function readReport(body: unknown): Omit<Probe, "status"> {
  const { ok, checks = [] } = body as {
    ok: boolean;
    checks?: { name: string; ok: boolean; reason: string }[];
  };
  return {
    ok,
    reasons: Object.fromEntries(checks.map(({ name, reason }) => [name, reason])),
    red: checks.filter((check) => !check.ok).map(({ name }) => name),
  };
}
