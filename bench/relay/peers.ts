import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { OutgoingMessage, Publisher } from "../../src/messaging/sns-publisher.ts";

/** What the relay is measured against, each in the way that its own documentation gives for a backlog. */
export const PEERS = ["pg-boss", "graphile-worker", "pg-transactional-outbox"] as const;
export type PeerName = (typeof PEERS)[number];

/** A library with its own tables in a database of its own. */
export interface Peer {
  readonly fill: (messages: readonly OutgoingMessage[]) => Promise<void>;
  /** Works on what was filled in until `done`. */
  readonly drain: (sink: PeerSink) => Promise<void>;
  /** Stops working, when the clock has stopped. */
  readonly settle: () => Promise<void>;
  readonly empty: () => Promise<void>;
  readonly close: () => Promise<void>;
}

export interface PeerSink {
  readonly send: (messages: readonly OutgoingMessage[]) => Promise<void>;
  readonly sendOne: (message: OutgoingMessage) => Promise<void>;
  readonly done: Promise<void>;
}

const PEERS_DIR = join(import.meta.dirname, "..", "peers");
const ENTRIES_A_CALL = 10;

/**
 * Installs the peers into a folder of their own, once: the root has none of them. Answers why that failed, null where it
 * did not.
 */
export async function installPeers(): Promise<string | null> {
  if (PEERS.every(isInstalled)) return null;
  const npm = spawn("npm", ["ci", "--prefix", PEERS_DIR, "--ignore-scripts", "--loglevel=error"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let errors = "";
  npm.stderr.on("data", (text: Buffer) => (errors += text.toString()));
  try {
    const [code] = (await once(npm, "close")) as [number | null];
    return code === 0
      ? null
      : `npm ci --prefix bench/peers ended with ${code}: ${errors.trim().split("\n")[0]}`;
  } catch (error) {
    return `npm can't be started: ${String(error)}`;
  }
}

export async function openPeer(name: PeerName, url: string): Promise<Peer> {
  const module = (await import(join(PEERS_DIR, `${name}.mjs`))) as {
    open: (options: { url: string }) => Promise<Peer>;
  };
  return await module.open({ url });
}

export function peerVersion(name: PeerName): string {
  const file = readFileSync(join(PEERS_DIR, "package.json"), "utf8");
  return (JSON.parse(file) as { dependencies: Record<PeerName, string> }).dependencies[name];
}

/** Fills the peer, lets it hand everything to the publisher, and answers the ms from its start to the last receipt. */
export async function drainPeer(
  peer: Peer,
  { publisher, messages }: { publisher: Publisher; messages: readonly OutgoingMessage[] },
): Promise<number> {
  await peer.empty();
  await peer.fill(messages);
  const sink = createSink(publisher, messages.length);
  const since = performance.now();
  await peer.drain(sink);
  const ms = performance.now() - since;
  await peer.settle();
  return ms;
}

/**
 * Publishes through the same calls as Remit. Who hands over one message at a time gets what its neighbours hand over in the
 * same turn of the loop into the same call: more than its documentation does.
 */
function createSink(publisher: Publisher, count: number): PeerSink {
  const { promise: done, resolve, reject } = Promise.withResolvers<void>();
  let accepted = 0;
  const send = async (messages: readonly OutgoingMessage[]): Promise<void> => {
    const results = await publisher.publish(messages);
    const refused = results.find(({ kind }) => kind !== "accepted");
    if (refused !== undefined) reject(new Error(`the broker refused ${refused.messageId}`));
    accepted += results.length;
    if (accepted >= count) resolve();
  };
  let waiting: { message: OutgoingMessage; ended: PromiseWithResolvers<void> }[] = [];
  const flush = async (): Promise<void> => {
    const taken = waiting;
    waiting = [];
    if (taken.length === 0) return;
    try {
      await send(taken.map(({ message }) => message));
      for (const { ended } of taken) ended.resolve();
    } catch (error) {
      for (const { ended } of taken) ended.reject(error);
    }
  };
  const sendOne = async (message: OutgoingMessage): Promise<void> => {
    const ended = Promise.withResolvers<void>();
    waiting.push({ message, ended });
    if (waiting.length >= ENTRIES_A_CALL) void flush();
    else if (waiting.length === 1) setImmediate(() => void flush());
    await ended.promise;
  };
  return { send, sendOne, done };
}

function isInstalled(name: PeerName): boolean {
  const file = join(PEERS_DIR, "node_modules", name, "package.json");
  if (!existsSync(file)) return false;
  const { version } = JSON.parse(readFileSync(file, "utf8")) as { version: string };
  return version === peerVersion(name);
}
