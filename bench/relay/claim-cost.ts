import { randomUUID } from "node:crypto";
import type { PoolClient } from "pg";
import { claimRows, cursorAtStart } from "../../src/database/outbox-queries.ts";
import { median } from "../load.ts";
import type { BenchOptions } from "../options.ts";
import type { Reporter } from "../report.ts";
import { WHOLE_RANGE } from "./drains.ts";
import { aCreatedEvent, asReplica, fillOutbox } from "./events.ts";
import type { BenchDatabase, Scene } from "./scene.ts";
import { LEASE_MS } from "./scene.ts";

const PENDING_ROWS = 1_000;
const ROWS_MAX = 100;
const ROWS_PER_AGGREGATE_MAX = 10;
const CLAIMS_A_ROUND = 40;
const ROWS_OF_ONE_AGGREGATE = 50_000;
/** Two sessions, one a core. */
const INSERTERS = 2;

/** What one claim costs beside a long history, and beside one aggregate with a long queue, as ratios to neither. */
export async function measureClaimCost(
  scene: Scene,
  options: BenchOptions,
  reporter: Reporter,
): Promise<void> {
  const empty = await scene.openDatabase();
  try {
    await fillPending(empty);
    await compare(
      scene,
      { empty, options, reporter },
      {
        name: `claim.cost_with_${short(options.publishedRows)}_published`,
        fill: async (database) => await fillPublished(database, options.publishedRows),
      },
    );
    await compare(
      scene,
      { empty, options, reporter },
      {
        name: `claim.cost_with_${short(ROWS_OF_ONE_AGGREGATE)}_of_one_aggregate`,
        fill: async (database) => await fillOneAggregate(database, "PENDING"),
      },
    );
    await compare(
      scene,
      { empty, options, reporter },
      {
        name: `claim.cost_with_${short(ROWS_OF_ONE_AGGREGATE)}_behind_a_dead_event`,
        fill: async (database) => await fillOneAggregate(database, "DEAD"),
      },
    );
  } finally {
    await empty.close();
  }
}

async function compare(
  scene: Scene,
  { empty, options, reporter }: { empty: BenchDatabase; options: BenchOptions; reporter: Reporter },
  { name, fill }: { name: string; fill: (database: BenchDatabase) => Promise<void> },
): Promise<void> {
  const full = await scene.openDatabase();
  try {
    const since = performance.now();
    await fill(full);
    // As autovacuum leaves it: the history analysed, and no pending event at that time.
    await full.admin.query("VACUUM (ANALYZE) remit.outbox");
    const fillSeconds = (performance.now() - since) / 1_000;
    await fillPending(full);
    const ofFull = await full.app.pool.connect();
    const ofEmpty = await empty.app.pool.connect();
    const rounds: { full: number; empty: number }[] = [];
    try {
      await claims(ofFull, ofEmpty);
      for (let round = 0; round < options.rounds; round += 1) {
        rounds.push(await claims(ofFull, ofEmpty));
      }
    } finally {
      ofFull.release();
      ofEmpty.release();
    }
    reporter.figure({
      name,
      unit: "ratio",
      rounds: rounds.map((round) => round.full / round.empty),
      target: { atMost: 1.1 },
      details: {
        claimMs: median(rounds.map((round) => round.full)),
        emptyMs: median(rounds.map((round) => round.empty)),
        pendingRows: PENDING_ROWS,
        fillSeconds,
      },
    });
  } finally {
    await full.close();
  }
}

/** Medians of claims that take turns. */
async function claims(
  ofFull: PoolClient,
  ofEmpty: PoolClient,
): Promise<{ full: number; empty: number }> {
  const full: number[] = [];
  const empty: number[] = [];
  for (let claim = 0; claim < CLAIMS_A_ROUND; claim += 1) {
    full.push(await timeClaim(ofFull));
    empty.push(await timeClaim(ofEmpty));
  }
  return { full: median(full), empty: median(empty) };
}

/** Rolled back, so that the next one finds the same rows due. */
async function timeClaim(client: PoolClient): Promise<number> {
  await client.query("BEGIN");
  const since = performance.now();
  const { rows } = await claimRows(
    {
      run: async ({ name, text }, values) =>
        (await client.query({ name, text, values: [...values] })).rows,
    },
    {
      ...WHOLE_RANGE,
      cursor: cursorAtStart(WHOLE_RANGE.fromShard),
      rowsMax: ROWS_MAX,
      rowsPerAggregateMax: ROWS_PER_AGGREGATE_MAX,
      leaseToken: randomUUID(),
      leaseMs: LEASE_MS,
    },
  );
  const ms = performance.now() - since;
  await client.query("ROLLBACK");
  if (rows.length !== ROWS_MAX) throw new Error(`a claim found ${rows.length} of ${ROWS_MAX} rows`);
  return ms;
}

async function fillPending({ admin }: BenchDatabase): Promise<void> {
  await fillOutbox(admin, Array.from({ length: PENDING_ROWS }, aCreatedEvent));
}

/**
 * History: an event an aggregate, ids and aggregates in the order of time as UUIDv7 has it, small documents. The checks
 * would cost more than the rows; they come back before a claim is timed, for what is written from then on.
 */
async function fillPublished({ admin }: BenchDatabase, rows: number): Promise<void> {
  const checks = await admin.query<{ name: string; definition: string }>(
    `SELECT conname AS name, pg_get_constraintdef(oid) AS definition
       FROM pg_constraint
      WHERE conrelid = 'remit.outbox'::regclass AND contype = 'c'`,
  );
  for (const { name } of checks.rows) {
    await admin.query(`ALTER TABLE remit.outbox DROP CONSTRAINT ${name}`);
  }
  const share = Math.ceil(rows / INSERTERS);
  await Promise.all(
    Array.from({ length: INSERTERS }, async (_, index) => {
      const [from, to] = [index * share + 1, Math.min(rows, (index + 1) * share)];
      await asReplica(admin, [
        `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers, shard, status, claims, broker_message_id, created_at, published_at)
         SELECT id, 'payment', id::text, 1, 'payment.created', '{"specversion": "1.0"}', '{}', n & 63, 'PUBLISHED', 1, id::text,
                now() - interval '7 days', now() - interval '7 days'
           FROM (SELECT n, ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id
                   FROM generate_series(${from}, ${to}) n) numbered`,
      ]);
    }),
  );
  for (const { name, definition } of checks.rows) {
    await admin.query(`ALTER TABLE remit.outbox ADD CONSTRAINT ${name} ${definition} NOT VALID`);
  }
}

/** The long queue stands in front: its shard and type sort before all others. */
async function fillOneAggregate(
  { admin }: BenchDatabase,
  first: "PENDING" | "DEAD",
): Promise<void> {
  await asReplica(admin, [
    `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, shard, status)
     SELECT gen_random_uuid(), 'a', 'hot', n, 'a.b', '{"specversion": "1.0"}', 0, CASE n WHEN 1 THEN '${first}' ELSE 'PENDING' END
       FROM generate_series(1, ${ROWS_OF_ONE_AGGREGATE}) n`,
  ]);
}

function short(rows: number): string {
  if (rows % 1_000_000 === 0) return `${rows / 1_000_000}m`;
  return rows % 1_000 === 0 ? `${rows / 1_000}k` : String(rows);
}
