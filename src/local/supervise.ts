import { setTimeout as delay } from "node:timers/promises";
import type { Exit, Log, Service } from "./processes.ts";

/** A service that is started again whenever it ends without being asked to. */
export interface Supervised<Kind extends Service> {
  readonly name: string;
  readonly current: () => Kind;
  readonly stop: () => Promise<void>;
}

export interface SuperviseOptions<Kind extends Service> {
  readonly name: string;
  readonly start: () => Promise<Kind>;
  readonly log: Log;
  readonly onRestart: () => void;
}

const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 5_000;

/** Starts a service and keeps it running until `stop`; a first start that fails is the caller's error. */
export async function supervise<Kind extends Service>({
  name,
  start,
  log,
  onRestart,
}: SuperviseOptions<Kind>): Promise<Supervised<Kind>> {
  const stopping = new AbortController();
  let current = await start();

  const watch = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const exit = await current.exited;
      if (stopping.signal.aborted) return;
      log(`${name} (pid ${current.pid}) ended with ${describeExit(exit)}; starting it again`);
      const again = await startAgain({ name, start, log, stopping: stopping.signal });
      if (again === null) return;
      current = again;
      log(`${name} runs again, pid ${current.pid}`);
      onRestart();
    }
  };
  const watched = watch();

  return {
    name,
    current: () => current,
    async stop() {
      stopping.abort();
      await current.stop();
      await watched;
    },
  };
}

/** Never gives up: the wait grows to a bound, and each failure is said. Null when the stack stops meanwhile. */
async function startAgain<Kind extends Service>({
  name,
  start,
  log,
  stopping,
}: {
  name: string;
  start: () => Promise<Kind>;
  log: Log;
  stopping: AbortSignal;
}): Promise<Kind | null> {
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
    await delay(waitMs, undefined, { signal: stopping }).catch(() => undefined);
    if (stopping.aborted) return null;
    try {
      const service = await start();
      if (!stopping.aborted) return service;
      await service.stop();
      return null;
    } catch (error) {
      log(`${name} can't be started: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

function describeExit({ code, signal }: Exit): string {
  return signal ?? `exit code ${code}`;
}
