import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Connection } from "@temporalio/client";
import { inheritedEnvironment } from "./environment.ts";
import { SEARCH_ATTRIBUTES } from "../domain/search-attributes.ts";
import { freePort } from "./ports.ts";
import { launch, logOf } from "./processes.ts";
import type { Guard, Launched, Service } from "./processes.ts";

export interface TemporalServer extends Service {
  readonly address: string;
  readonly uiUrl: string;
  readonly namespace: string;
}

export interface TemporalOptions {
  readonly binary: string;
  /** Without it the histories live in memory. */
  readonly dir?: string;
  readonly port?: number;
  readonly uiPort?: number;
  readonly logFile: string;
  readonly guard?: Guard | undefined;
  /** More of the server's dynamic configuration, as `key=value`. */
  readonly dynamicConfig?: readonly string[];
}

const NAMESPACE = "default";
const START_MS_MAX = 60_000;
const LOOK_AGAIN_MS = 100;

/**
 * Starts Temporal's dev server on loopback and waits until its namespace knows our search attributes. It chooses inner ports
 * of its own, and each may be taken between choice and use: one that ends at once is started again.
 */
export async function startTemporal(options: TemporalOptions): Promise<TemporalServer> {
  if (options.dir !== undefined) mkdirSync(options.dir, { recursive: true });
  for (let starts = 1; ; starts += 1) {
    const port = options.port ?? (await freePort());
    const uiPort = options.uiPort ?? (await freePort());
    const launched = await launchServer(options, { port, uiPort });
    const address = `127.0.0.1:${port}`;
    if (await serves(address, launched)) {
      const { pid, exited, stop } = launched;
      const uiUrl = `http://127.0.0.1:${uiPort}`;
      return { pid, exited, stop, address, uiUrl, namespace: NAMESPACE };
    }
    const hasEnded = launched.child.exitCode !== null;
    await launched.stop();
    if (!hasEnded || starts === STARTS_MAX) {
      throw new Error(`Temporal doesn't serve on ${address}; ${logOf(options.logFile)}`);
    }
  }
}

const STARTS_MAX = 3;

async function launchServer(
  options: TemporalOptions,
  ports: { port: number; uiPort: number },
): Promise<Launched> {
  return await launch({
    name: "temporal",
    command: options.binary,
    args: [
      ...serverArguments({ ...ports, dir: options.dir }),
      ...(options.dynamicConfig ?? []).flatMap((setting) => ["--dynamic-config-value", setting]),
    ],
    // Nothing of the caller's: a TEMPORAL_* from outside would change what runs.
    env: { ...inheritedEnvironment(), HOME: options.dir ?? dirname(options.logFile) },
    logFile: options.logFile,
    guard: options.guard,
  });
}

function serverArguments({
  port,
  uiPort,
  dir,
}: {
  port: number;
  uiPort: number;
  dir: string | undefined;
}): string[] {
  const options = [
    ["--ip", "127.0.0.1"],
    ["--ui-ip", "127.0.0.1"],
    ["--port", String(port)],
    ["--ui-port", String(uiPort)],
    ["--log-level", "error"],
    ["--ui-disable-news-fetch"],
    // One history shard and 20 polls a second make each workflow task wait up to 50 ms.
    ["--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000"],
    ...SEARCH_ATTRIBUTES.map((name) => ["--search-attribute", `${name}=Keyword`]),
  ];
  if (dir !== undefined) {
    options.push(
      ["--db-filename", join(dir, "temporal.db")],
      // The default journal makes every step about three times slower; what WAL may lose takes a power cut.
      ["--sqlite-pragma", "journal_mode=wal"],
      ["--sqlite-pragma", "synchronous=1"],
    );
  }
  return ["server", "start-dev", ...options.flat()];
}

async function serves(address: string, { child }: Launched): Promise<boolean> {
  const until = Date.now() + START_MS_MAX;
  while (Date.now() < until) {
    if (child.exitCode !== null || child.signalCode !== null) return false;
    if (await namespaceAnswers(address)) return true;
    await delay(LOOK_AGAIN_MS);
  }
  return false;
}

async function namespaceAnswers(address: string): Promise<boolean> {
  try {
    const connection = await Connection.connect({ address, connectTimeout: ANSWER_MS_MAX });
    try {
      await connection.withDeadline(
        Date.now() + ANSWER_MS_MAX,
        async () =>
          await connection.workflowService.listWorkflowExecutions({
            namespace: NAMESPACE,
            query: SEARCH_ATTRIBUTES.map((name) => `${name} = "none"`).join(" OR "),
          }),
      );
      return true;
    } finally {
      await connection.close();
    }
  } catch {
    return false;
  }
}

const ANSWER_MS_MAX = 2_000;
