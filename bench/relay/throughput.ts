import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import type { Publisher } from "../../src/messaging/sns-publisher.ts";
import type { OutboxEvent } from "../../src/domain/events.ts";
import { median } from "../load.ts";
import type { BenchOptions } from "../options.ts";
import type { Reporter } from "../report.ts";
import { cpuBetween, readCpu } from "./cpu.ts";
import type { CpuTimes } from "./cpu.ts";
import { createNoopPublisher, drainBareLoop, drainOutbox } from "./drains.ts";
import type { StepTimes } from "./drains.ts";
import { aCreatedEvent, emptyOutbox, fillOutbox, toMessage } from "./events.ts";
import { PEERS, drainPeer, installPeers, openPeer, peerVersion } from "./peers.ts";
import type { Peer, PeerName } from "./peers.ts";
import type { BenchDatabase, Scene } from "./scene.ts";

/** Events that are drained before the clock counts: code gets compiled, connections opened, statements planned. */
const WARM_UP_EVENTS = 1_000;

interface Bench {
  readonly scene: Scene;
  readonly options: BenchOptions;
  readonly reporter: Reporter;
  readonly database: BenchDatabase;
}

interface Drained {
  readonly ms: number;
  readonly steps: StepTimes;
  readonly cpu: CpuTimes;
}

/** Draining a backlog: against the bare calls, and against other libraries that do the same. */
export async function measureThroughput(
  scene: Scene,
  options: BenchOptions,
  reporter: Reporter,
): Promise<void> {
  const database = await scene.openDatabase();
  const peers = await openPeers(scene, reporter);
  try {
    const bench = { scene, options, reporter, database };
    await againstCeiling(bench);
    for (const kind of ["sns", "noop"] as const) await againstPeers(bench, peers, kind);
  } finally {
    for (const peer of peers.values()) await peer.close();
    await database.close();
  }
}

async function againstCeiling({ scene, options, reporter, database }: Bench): Promise<void> {
  const publisher = createSnsPublisher(scene.sns, scene.topicArn);
  const count = options.events;
  await drainRemit({ scene, database }, publisher, WARM_UP_EVENTS);
  await drainBareLoop(scene, events(WARM_UP_EVENTS).map(toMessage));
  const rounds: { floorMs: number; floorCpu: CpuTimes; remit: Drained }[] = [];
  for (let round = 0; round < options.rounds; round += 1) {
    await scene.emptyQueue();
    const before = readCpu(scene.pids);
    const floorMs = await drainBareLoop(scene, events(count).map(toMessage));
    const floorCpu = cpuBetween(before, readCpu(scene.pids));
    await scene.emptyQueue();
    rounds.push({
      floorMs,
      floorCpu,
      remit: await drainRemit({ scene, database }, publisher, count),
    });
  }
  const perSecond = (ms: number): number => (count / ms) * 1_000;
  reporter.figure({
    name: "relay.throughput_vs_ceiling",
    unit: "ratio",
    rounds: rounds.map(({ floorMs, remit }) => floorMs / remit.ms),
    target: { atLeast: 0.8 },
    details: {
      events: count,
      remitPerSecond: Math.round(median(rounds.map(({ remit }) => perSecond(remit.ms)))),
      ceilingPerSecond: Math.round(median(rounds.map(({ floorMs }) => perSecond(floorMs)))),
    },
  });
  reporter.note(stepsOf(rounds.map(({ remit }) => remit)));
  reporter.note(
    `  CPU ms per 1,000 events: Remit ${cpuOf(
      rounds.map(({ remit }) => remit.cpu),
      count,
    )}; bare loop ${cpuOf(
      rounds.map(({ floorCpu }) => floorCpu),
      count,
    )}`,
  );
}

/** Where a drain's time goes: steps overlap, so their sum is more than the wall clock. */
function stepsOf(drains: readonly Drained[]): string {
  const names = ["claim_rows", "send", "mark_published"];
  const stepMs = (name: string): number => sum(drains.map(({ steps }) => steps.get(name)?.ms ?? 0));
  const total = sum(names.map(stepMs));
  const parts = names.map((name) => {
    const times = sum(drains.map(({ steps }) => steps.get(name)?.count ?? 0));
    const ms = (stepMs(name) / Math.max(1, times)).toFixed(1);
    return `${name} ${ms} ms × ${times} (${Math.round((100 * stepMs(name)) / total)} %)`;
  });
  const atATime = (total / sum(drains.map(({ ms }) => ms))).toFixed(1);
  return `  steps of Remit's drains: ${parts.join(", ")}; ${atATime} at a time`;
}

/** Per 1,000 events, by process; `relay` is this one. */
function cpuOf(times: readonly CpuTimes[], count: number): string {
  const thousands = (times.length * count) / 1_000;
  return (["relay", "postgres", "broker"] as const)
    .map((part) => {
      const ms = sum(times.map((time) => time[part] ?? Number.NaN));
      return `${part} ${(ms / thousands).toFixed(0)}`;
    })
    .join(", ");
}

async function againstPeers(
  { scene, options, reporter, database }: Bench,
  peers: ReadonlyMap<PeerName, Peer>,
  kind: "sns" | "noop",
): Promise<void> {
  const publisher =
    kind === "sns" ? createSnsPublisher(scene.sns, scene.topicArn) : createNoopPublisher();
  const count = options.events;
  const remit: Drained[] = [];
  const peerMs = new Map<PeerName, number[]>([...peers.keys()].map((name) => [name, []]));
  await drainRemit({ scene, database }, publisher, WARM_UP_EVENTS);
  for (const [, peer] of peers) {
    await drainPeer(peer, { publisher, messages: events(WARM_UP_EVENTS).map(toMessage) });
  }
  for (let round = 0; round < options.rounds; round += 1) {
    await scene.emptyQueue();
    remit.push(await drainRemit({ scene, database }, publisher, count));
    for (const [name, peer] of peers) {
      await scene.emptyQueue();
      const messages = events(count).map(toMessage);
      peerMs.get(name)?.push(await drainPeer(peer, { publisher, messages }));
    }
  }
  const perSecond = (ms: number): number => Math.round((count / ms) * 1_000);
  for (const [name, times] of peerMs) {
    reporter.figure({
      name: `relay.${kind === "noop" ? "noop_" : ""}vs_${name.replaceAll("-", "_")}`,
      unit: "ratio",
      rounds: times.map((ms, round) => ms / (remit[round]?.ms ?? Number.NaN)),
      ...(kind === "noop" ? { target: { atLeast: 3 } } : {}),
      details: {
        events: count,
        remitPerSecond: perSecond(median(remit.map((drain) => drain.ms))),
        peerPerSecond: perSecond(median(times)),
        version: peerVersion(name),
      },
    });
  }
  reporter.note(stepsOf(remit));
  reporter.note(
    `  CPU ms per 1,000 events: Remit ${cpuOf(
      remit.map(({ cpu }) => cpu),
      count,
    )}`,
  );
}

async function openPeers(scene: Scene, reporter: Reporter): Promise<Map<PeerName, Peer>> {
  const peers = new Map<PeerName, Peer>();
  const reason = await installPeers();
  for (const name of PEERS) {
    try {
      if (reason !== null) throw new Error(reason);
      peers.set(name, await openPeer(name, (await scene.openBareDatabase()).url));
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      reporter.missing(`relay.vs_${name.replaceAll("-", "_")}`, `could not be installed: ${why}`);
    }
  }
  return peers;
}

async function drainRemit(
  { scene, database }: { scene: Scene; database: BenchDatabase },
  publisher: Publisher,
  count: number,
): Promise<Drained> {
  await emptyOutbox(database.admin);
  await fillOutbox(database.admin, events(count));
  const before = readCpu(scene.pids);
  const { ms, steps } = await drainOutbox({ database: database.app, publisher, count });
  const cpu = cpuBetween(before, readCpu(scene.pids));
  await expectAllPublished(database, count);
  return { ms, steps, cpu };
}

/** A figure counts only if the outbox holds a receipt for each event after it. */
async function expectAllPublished({ admin }: BenchDatabase, count: number): Promise<void> {
  const { rows } = await admin.query<{ published: number }>(
    "SELECT count(*)::int AS published FROM remit.outbox WHERE status = 'PUBLISHED' AND claims = 1",
  );
  const published = rows[0]?.published ?? 0;
  if (published !== count) throw new Error(`${published} of ${count} events have a receipt`);
}

function events(count: number): OutboxEvent[] {
  return Array.from({ length: count }, aCreatedEvent);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
