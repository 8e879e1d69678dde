import { quantile } from "../load.ts";
import type { BenchOptions } from "../options.ts";
import type { Reporter } from "../report.ts";
import { startRelay } from "./running-relay.ts";
import type { BenchDatabase, Scene } from "./scene.ts";

/** Events a second while somebody holds the horizon: each leaves a dead entry in the relay's index and two dead tuples. */
const PER_SECOND = 100;

/**
 * A forgotten transaction with an xid and a snapshot: vacuum can remove nothing that died after its start, and every claim
 * walks over it.
 */
export async function measureHeldXid(
  scene: Scene,
  { heldSeconds }: BenchOptions,
  reporter: Reporter,
): Promise<void> {
  const database = await scene.openDatabase();
  await database.admin.query("CREATE EXTENSION pgstattuple");
  const relay = await startRelay(scene, database);
  try {
    const load = { perSecond: PER_SECOND, seconds: heldSeconds, notifies: true };
    await relay.flow({ ...load, seconds: 5 });
    const before = await relay.flow(load);
    const holder = await database.admin.connect();
    await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await holder.query("SELECT pg_current_xact_id(), count(*) FROM remit.outbox");
    const during = await relay.flow(load);
    const dead = await deadEntries(database);
    await holder.query("ROLLBACK");
    holder.release();
    const after = await relay.flow({ ...load, seconds: Math.ceil(heldSeconds / 2) });
    const last = during.slice(-Math.ceil(during.length / 4));
    const p99 = (values: readonly number[]): number => quantile(values, 0.99);
    reporter.figure({
      name: "heldxid.p99",
      unit: "ratio",
      rounds: [p99(during) / p99(before)],
      details: {
        heldSeconds,
        eventsPerSecond: PER_SECOND,
        p99BeforeMs: p99(before),
        p99DuringMs: p99(during),
        p99LastQuarterMs: p99(last),
        p50BeforeMs: quantile(before, 0.5),
        p50LastQuarterMs: quantile(last, 0.5),
        p99AfterMs: p99(after),
      },
    });
    reporter.figure({
      name: "heldxid.dead_index_entries",
      unit: "rows",
      rounds: [dead.indexEntries],
      details: { deadTuples: dead.tuples, indexBytes: dead.indexBytes },
    });
  } finally {
    await relay.stop();
    await database.close();
  }
}

/** Everything is published by now, so what is in the index of open rows is dead. */
async function deadEntries({
  admin,
}: BenchDatabase): Promise<{ indexEntries: number; tuples: number; indexBytes: number }> {
  const { rows } = await admin.query<{ index_entries: number; tuples: number; bytes: number }>(
    `SELECT (SELECT tuple_count::int FROM pgstattuple('remit.outbox_open_idx')) AS index_entries,
            (SELECT n_dead_tup::int FROM pg_stat_user_tables WHERE relid = 'remit.outbox'::regclass) AS tuples,
            pg_relation_size('remit.outbox_open_idx')::int AS bytes`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error("the statistics returned no row");
  return { indexEntries: row.index_entries, tuples: row.tuples, indexBytes: row.bytes };
}
