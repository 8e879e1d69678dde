import { join } from "node:path";
import { inheritedEnvironment } from "./environment.ts";
import { launch, logOf } from "./processes.ts";
import type { StackFile } from "../config/stack-file.ts";
import type { Guard, Launched, Service } from "./processes.ts";

/** What a worker must know of the stack. */
export type WorkerTargets = Omit<StackFile, "pid" | "processes" | "adminDatabaseUrl">;

export interface WorkerOptions {
  readonly targets: WorkerTargets;
  /** Its working directory, with no stack of its own in it, so that only its environment counts. */
  readonly dir: string;
  readonly logFile: string;
  /** The caller's variables, of which the worker gets the `REMIT_*` that name no target. */
  readonly env: NodeJS.ProcessEnv;
  readonly guard?: Guard | undefined;
}

const START_MS_MAX = 90_000;
/** What a worker gets to finish its activities. */
const DRAIN_MS_MAX = 15_000;

/** Starts one worker process for all roles; resolves when it polls. */
export async function startWorker(options: WorkerOptions): Promise<Service> {
  const launched = await launch({
    name: "worker",
    command: process.execPath,
    args: [join(import.meta.dirname, "..", "worker", "main.ts")],
    cwd: options.dir,
    env: workerEnvironment(options),
    logFile: options.logFile,
    ipc: true,
    stopGraceMs: DRAIN_MS_MAX,
    guard: options.guard,
  });
  const problem = await problemBeforeReady(launched);
  if (problem !== null) {
    await launched.stop();
    throw new Error(`${problem}; ${logOf(options.logFile)}`);
  }
  const { pid, exited, stop } = launched;
  return { pid, exited, stop };
}

/** Exactly what the worker needs: never the caller's AWS_*, TEMPORAL_* or DATABASE_URL. */
export function workerEnvironment({
  targets,
  dir,
  env,
}: Pick<WorkerOptions, "targets" | "dir" | "env">): Record<string, string> {
  const tuning = Object.entries(env).filter(
    ([name, value]) => /^REMIT_.*(?<!_URL|_ARN)$/.test(name) && value !== undefined,
  );
  return {
    ...(Object.fromEntries(tuning) as Record<string, string>),
    ...inheritedEnvironment(),
    HOME: env["HOME"] || dir,
    DATABASE_URL: targets.databaseUrl,
    TEMPORAL_ADDRESS: targets.temporalAddress,
    TEMPORAL_NAMESPACE: targets.temporalNamespace,
    // HOME may hold profiles of Temporal's; this one has no profiles.
    TEMPORAL_CONFIG_FILE: join(dir, "no-profiles.toml"),
    AWS_ENDPOINT_URL: targets.awsEndpointUrl,
    AWS_REGION: targets.awsRegion,
    AWS_ACCESS_KEY_ID: "local",
    AWS_SECRET_ACCESS_KEY: "local",
    REMIT_TOPIC_ARN: targets.topicArn,
    REMIT_LEDGER_QUEUE_URL: targets.ledgerQueueUrl,
    REMIT_LEDGER_DLQ_URL: targets.ledgerDlqUrl,
    REMIT_TEMPORAL_UI_URL: targets.temporalUiUrl,
  };
}

async function problemBeforeReady({ child, exited }: Launched): Promise<string | null> {
  return await new Promise((resolve) => {
    const timer = setTimeout(
      () => resolve(`the worker isn't ready after ${START_MS_MAX / 1000} s`),
      START_MS_MAX,
    );
    child.on("message", (message) => {
      if ((message as { type?: unknown }).type !== "ready") return;
      clearTimeout(timer);
      resolve(null);
    });
    void exited.then(({ code, signal }) => {
      clearTimeout(timer);
      resolve(`the worker ended with ${signal ?? `exit code ${code}`} before it was ready`);
    });
  });
}
