import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import type { Pool } from "pg";
import type { Tx } from "./database.ts";

const CHANNEL = "remit_outbox";
/** A channel of its own for the proof, so that proving wakes nobody. */
const PROOF_CHANNEL = "remit_outbox_proof";
/** NOTIFY takes a global lock at commit: one every 10 ms costs nothing, one per transaction 60 % of the throughput. */
const NOTIFY_INTERVAL_MS = 10;
/** A half-open socket reports nothing; the session must answer a question this often. */
const PROOF_INTERVAL_MS = 5_000;
const PROOF_TIMEOUT_MS = 3_000;
const RECONNECT_MS = 1_000;

/** Tells the relays after a commit that there may be something to send. Nothing depends on it. */
export interface OutboxNotifier {
  readonly notify: () => void;
}

/** Sends the first one at once and what follows within 10 ms as one more. */
export function createOutboxNotifier(pool: Pool): OutboxNotifier {
  let isResting = false;
  let isAsked = false;
  const send = (): void => {
    isAsked = false;
    isResting = true;
    // A lost hint is made good by the poll.
    void pool
      .query(`NOTIFY ${CHANNEL}`)
      .catch(() => undefined)
      .then(async () => {
        await delay(NOTIFY_INTERVAL_MS);
        isResting = false;
        if (isAsked) send();
      });
  };
  return {
    notify: () => {
      if (isResting) isAsked = true;
      else send();
    },
  };
}

/** The same of a process that ends after it. */
export async function notifyOutbox(tx: Tx): Promise<void> {
  await tx.run({ name: "notify_outbox", text: `NOTIFY ${CHANNEL}` }, []);
}

/** One LISTEN session a process, shared by its shards: a session per window would lose what falls between two. */
export interface OutboxListener {
  /** True while the session has proved within the last seconds that it hears. */
  readonly isAlive: () => boolean;
  /**
   * Starts to watch; `wait` resolves at the first notification since then, after `timeoutMs`, or on the signal. Watch
   * before you look into the table: what is announced between the look and the wait isn't lost.
   */
  readonly watch: () => OutboxWatch;
  readonly close: () => Promise<void>;
}

export interface OutboxWatch {
  readonly wait: (timeoutMs: number, signal: AbortSignal) => Promise<void>;
}

export interface OutboxListenerOptions {
  readonly databaseUrl: string;
  readonly onStateChange: (state: { alive: boolean; reason: string | null }) => void;
}

/** Connects in the background and for ever again; until it hears, `wait` falls back to its time-out. */
export function createOutboxListener(options: OutboxListenerOptions): OutboxListener {
  const waiting = new Set<() => void>();
  const closing = new AbortController();
  let isAlive = false;
  let announcements = 0;
  const wakeAll = (): void => {
    announcements += 1;
    for (const wake of waiting) wake();
  };
  const setAlive = (alive: boolean, reason: string | null): void => {
    if (alive !== isAlive) options.onStateChange({ alive, reason });
    isAlive = alive;
    // What was announced while nobody listened is found by looking.
    if (alive) wakeAll();
  };
  const running = keepListening();

  async function keepListening(): Promise<void> {
    while (!closing.signal.aborted) {
      const reason = await listenUntilLost();
      if (!closing.signal.aborted) setAlive(false, reason);
      await delay(RECONNECT_MS, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  }

  async function listenUntilLost(): Promise<string> {
    const client = new Client({
      connectionString: options.databaseUrl,
      application_name: "remit-listen",
      connectionTimeoutMillis: PROOF_TIMEOUT_MS,
      query_timeout: PROOF_TIMEOUT_MS,
      keepAlive: true,
    });
    const lost = new AbortController();
    client.on("error", (error) => lost.abort(error));
    client.on("end", () => lost.abort(new Error("connection ended")));
    client.on("notification", ({ channel }) => {
      if (channel === CHANNEL) wakeAll();
    });
    try {
      await client.connect();
      await client.query(`LISTEN ${CHANNEL}; LISTEN ${PROOF_CHANNEL}`);
      await provesToHear(client);
      setAlive(true, null);
      const stop = AbortSignal.any([lost.signal, closing.signal]);
      while (!stop.aborted) {
        await delay(PROOF_INTERVAL_MS, undefined, { signal: stop }).catch(() => undefined);
        if (!stop.aborted) await provesToHear(client);
      }
      return lost.signal.aborted ? String(lost.signal.reason) : "closed";
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      await Promise.race([client.end(), delay(PROOF_TIMEOUT_MS)]).catch(() => undefined);
    }
  }

  return {
    isAlive: () => isAlive,
    watch: () => {
      const seen = announcements;
      return {
        wait: async (timeoutMs, signal) => {
          if (announcements > seen) return;
          const ended = new AbortController();
          const wake = (): void => ended.abort();
          waiting.add(wake);
          try {
            await delay(timeoutMs, undefined, { signal: AbortSignal.any([signal, ended.signal]) });
          } catch {
            // Woken: by a notification or by the caller.
          } finally {
            waiting.delete(wake);
          }
        },
      };
    },
    close: async () => {
      closing.abort();
      await running;
    },
  };
}

/**
 * Behind a transaction pooler LISTEN succeeds and nothing is ever heard, and a half-open socket is silent too: the
 * session must hear itself.
 */
async function provesToHear(client: Client): Promise<void> {
  const heard = new AbortController();
  client.once("notification", () => heard.abort());
  await client.query(`NOTIFY ${PROOF_CHANNEL}`);
  const outcome = await delay(PROOF_TIMEOUT_MS, "deaf", { signal: heard.signal }).catch(
    () => "heard",
  );
  if (outcome === "deaf") {
    throw new Error("LISTEN is deaf: is a transaction pooler between? The relay polls instead");
  }
}
