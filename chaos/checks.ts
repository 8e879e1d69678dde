import { setTimeout as delay } from "node:timers/promises";
import { GetQueueAttributesCommand, SQSClient } from "@aws-sdk/client-sqs";
import type { Client } from "pg";
import { createDatabase } from "../src/database/database.ts";
import { verify } from "../src/database/invariants.ts";
import { withClient } from "../src/local/postgres.ts";
import type { Asked, Oracle } from "./oracle.ts";
import type { ChaosStack } from "./stack.ts";

/** What the books say of a scenario, against what was asked. */
export interface Findings {
  readonly payments: number;
  readonly lost: number;
  readonly doubled: number;
  /** Everything that is wrong, in words; empty where all is right. */
  readonly problems: readonly string[];
}

const LOOK_EVERY_MS = 500;

/** Until nothing is on its way any more; answers what still is when the time is over. */
export async function untilQuiet(stack: ChaosStack, withinMs: number): Promise<string | null> {
  const endsAt = Date.now() + withinMs;
  for (;;) {
    const open = await whatIsOpen(stack).catch((error: unknown) => `PostgreSQL: ${String(error)}`);
    if (open === null || Date.now() >= endsAt) return open;
    await delay(LOOK_EVERY_MS);
  }
}

async function whatIsOpen({ adminDatabaseUrl }: ChaosStack): Promise<string | null> {
  return await withClient(adminDatabaseUrl, async (client) => {
    const { rows } = await client.query<Record<string, string>>(`
      SELECT (SELECT count(*) FROM remit.outbox WHERE status = 'PENDING') AS "events not published",
             (SELECT count(*) FROM remit.payments WHERE status IN ('pending', 'authorized', 'captured')) AS "payments without an end",
             (SELECT count(*) FROM remit.captures WHERE status = 'pending') AS "captures without an end",
             (SELECT count(*) FROM remit.refunds WHERE status = 'pending') AS "refunds without an end"`);
    const open = Object.entries(rows[0] ?? {}).filter(([, count]) => count !== "0");
    return open.length === 0 ? null : open.map(([what, count]) => `${count} ${what}`).join(", ");
  });
}

/** Looks at the books by SQL of its own: one payment a key, entries once, sums, order; then Remit's own invariants. */
export async function check(
  stack: ChaosStack,
  { oracle, scenario }: { oracle: Oracle; scenario: string },
): Promise<Findings> {
  const asked = oracle.of(scenario);
  const problems: string[] = [];
  const { lost, doubled } = await withClient(stack.adminDatabaseUrl, async (client) => {
    const counts = await checkEach(client, { asked, problems });
    await checkSums(client, { oracle, problems });
    await checkEvents(client, problems);
    return counts;
  });
  problems.push(...oracle.contradictions.splice(0));
  await checkInvariants(stack, problems);
  await checkDeadLetters(stack, problems);
  return { payments: asked.filter(({ kind }) => kind === "pay").length, lost, doubled, problems };
}

interface Recorded {
  readonly payment: string;
  readonly part: string | null;
  readonly key: string;
  readonly kind: string;
  readonly amount: string;
  readonly source: string;
  readonly destination: string;
  readonly status: string;
  readonly unpublished: string;
}

interface Moved {
  readonly payment: string;
  readonly part: string | null;
  readonly kind: string;
  readonly entries: { account: string; direction: string; amount: string }[];
}

async function checkEach(
  client: Client,
  { asked, problems }: { asked: readonly Asked[]; problems: string[] },
): Promise<{ lost: number; doubled: number }> {
  let lost = 0;
  let doubled = 0;
  const ofPayments = [...Map.groupBy(asked, ({ paymentKey }) => paymentKey).values()];
  for (let at = 0; at < ofPayments.length; at += PAYMENTS_A_BATCH) {
    const batch = ofPayments.slice(at, at + PAYMENTS_A_BATCH).flat();
    const counts = await checkBatch(client, { asked: batch, problems });
    lost += counts.lost;
    doubled += counts.doubled;
  }
  return { lost, doubled };
}

/** A soak's payments are too many to be held twice, as asked and as recorded. */
const PAYMENTS_A_BATCH = 5_000;

async function checkBatch(
  client: Client,
  { asked, problems }: { asked: readonly Asked[]; problems: string[] },
): Promise<{ lost: number; doubled: number }> {
  const keys = [...new Set(asked.map(({ paymentKey }) => paymentKey))];
  const { rows: recorded } = await client.query<Recorded>(RECORDED, [keys]);
  const { rows: moved } = await client.query<Moved>(MOVED, [keys]);
  const byKey = Map.groupBy(recorded, ({ kind, key }) => `${kind} ${key}`);
  const moves = Map.groupBy(moved, ({ kind, payment, part }) => `${kind} ${part ?? payment}`);
  const voided = new Set(
    asked.flatMap(({ kind, paymentKey }) => (kind === "void" ? [paymentKey] : [])),
  );
  let lost = 0;
  let doubled = 0;
  for (const one of asked) {
    const verdict = judge(one, { byKey, moves, isVoided: voided.has(one.paymentKey) });
    if (verdict === null) continue;
    if (verdict.is === "lost") lost += 1;
    else doubled += 1;
    problems.push(
      `${verdict.is}: ${one.kind} ${one.key} of ${one.amountMinor} ${one.from} → ${one.to}: ${verdict.why}`,
    );
  }
  return { lost, doubled };
}

interface Books {
  readonly byKey: Map<string, Recorded[]>;
  readonly moves: Map<string, Moved[]>;
  readonly isVoided: boolean;
}

type Verdict = { readonly is: "lost" | "doubled"; readonly why: string } | null;

function judge(asked: Asked, { byKey, moves, isVoided }: Books): Verdict {
  if (asked.kind === "void") return null; // Its payment says whether it was done.
  const found = byKey.get(`${asked.kind} ${asked.key}`) ?? [];
  const [row] = found;
  if (row === undefined) return { is: "lost", why: "nothing is recorded" };
  if (found.length > 1) return { is: "doubled", why: `recorded ${found.length} times` };
  if (BigInt(row.amount) !== asked.amountMinor)
    return { is: "lost", why: `recorded with ${row.amount}` };
  const isBookedByCaptures = asked.kind === "pay" && asked.isManual;
  const wanted = isVoided && asked.kind === "pay" ? "voided" : "settled";
  if (row.status !== wanted) return { is: "lost", why: `${row.status} instead of ${wanted}` };
  if (row.unpublished !== "0")
    return { is: "lost", why: `${row.unpublished} events aren't published` };
  const kind = asked.kind === "pay" ? "payment" : asked.kind;
  const booked = moves.get(`${kind} ${row.part ?? row.payment}`) ?? [];
  const wantedMoves = isBookedByCaptures ? 0 : 1;
  if (booked.length < wantedMoves) return { is: "lost", why: "not booked" };
  if (booked.length > wantedMoves) return { is: "doubled", why: `booked ${booked.length} times` };
  return booked[0] === undefined ? null : judgeEntries(asked, booked[0]);
}

function judgeEntries({ kind, from, to, amountMinor }: Asked, { entries }: Moved): Verdict {
  const [debited, credited] = kind === "refund" ? [to, from] : [from, to];
  const wanted = [
    `credit ${credited} ${amountMinor}`,
    `debit ${debited} ${amountMinor}`,
  ].toSorted();
  const found = entries
    .map(({ direction, account, amount }) => `${direction} ${account} ${amount}`)
    .toSorted();
  if (found.join() === wanted.join()) return null;
  return {
    is: found.length < wanted.length ? "lost" : "doubled",
    why: `entries are ${found.join(", ")}`,
  };
}

/** Everything recorded about these payments, each with its events that aren't published. */
const RECORDED = `
  SELECT p.id AS payment, NULL AS part, p.idempotency_key AS key, 'pay' AS kind, p.amount::text, p.source, p.destination, p.status,
         (SELECT count(*) FROM remit.outbox o
           WHERE o.aggregate_type = 'payment' AND o.aggregate_id = p.id::text AND o.status <> 'PUBLISHED')::text AS unpublished
    FROM remit.payments p
   WHERE p.idempotency_key = ANY ($1)
  UNION ALL
  SELECT c.payment_id, c.id::text, c.idempotency_key, 'capture', c.amount::text, p.source, p.destination, c.status, '0'
    FROM remit.captures c JOIN remit.payments p ON p.id = c.payment_id
   WHERE p.idempotency_key = ANY ($1)
  UNION ALL
  SELECT r.payment_id, r.id::text, r.idempotency_key, 'refund', r.amount::text, p.source, p.destination, r.status,
         (SELECT count(*) FROM remit.outbox o
           WHERE o.aggregate_type = 'refund' AND o.aggregate_id = r.id::text AND o.status <> 'PUBLISHED')::text
    FROM remit.refunds r JOIN remit.payments p ON p.id = r.payment_id
   WHERE p.idempotency_key = ANY ($1)`;

const MOVED = `
  SELECT t.payment_id AS payment, coalesce(t.capture_id, t.refund_id)::text AS part, t.kind,
         coalesce(jsonb_agg(jsonb_build_object('account', e.account_id, 'direction', e.direction, 'amount', e.amount::text))
                  FILTER (WHERE e.id IS NOT NULL), '[]') AS entries
    FROM remit.ledger_transactions t
    JOIN remit.payments p ON p.id = t.payment_id
    LEFT JOIN remit.ledger_entries e ON e.transaction_id = t.id
   WHERE p.idempotency_key = ANY ($1)
   GROUP BY t.id`;

async function checkSums(
  client: Client,
  { oracle, problems }: { oracle: Oracle; problems: string[] },
): Promise<void> {
  const { rows } = await client.query<{
    account: string;
    posted: string;
    entered: string;
    held: string;
  }>(`
    SELECT a.id AS account, a.posted::text, a.held::text,
           coalesce(sum(CASE e.direction WHEN 'credit' THEN e.amount ELSE -e.amount END), 0)::text AS entered
      FROM remit.accounts a
      LEFT JOIN remit.ledger_entries e ON e.account_id = a.id
     GROUP BY a.id`);
  const wanted = oracle.balances();
  for (const { account, posted, entered, held } of rows) {
    const sum = (wanted.get(account) ?? 0n).toString();
    if (entered !== sum || posted !== sum) {
      problems.push(
        `account ${account}: ${sum} was asked for, its entries sum to ${entered}, its balance is ${posted}`,
      );
    }
    if (held !== "0") problems.push(`account ${account}: ${held} is held still`);
  }
}

async function checkEvents(client: Client, problems: string[]): Promise<void> {
  const { rows } = await client.query<{ what: string }>(`
    SELECT 'event ' || id || ' is ' || status || ': ' || coalesce(last_error, '') AS what
      FROM remit.outbox
     WHERE status NOT IN ('PUBLISHED', 'PENDING')
    UNION ALL
    SELECT 'event ' || id || ' was published before its predecessor'
      FROM (${OUT_OF_ORDER}) event
     LIMIT 20`);
  problems.push(...rows.map(({ what }) => what));
}

/** Events that were published before their predecessor, or without one. */
export async function countOutOfOrder(client: Client): Promise<number> {
  const { rows } = await client.query(OUT_OF_ORDER);
  return rows.length;
}

const OUT_OF_ORDER = `
  SELECT id
    FROM (SELECT id, published_at, aggregate_version,
                 lag(published_at) OVER w AS before, lag(aggregate_version) OVER w AS version_before
            FROM remit.outbox
          WINDOW w AS (PARTITION BY aggregate_type, aggregate_id ORDER BY aggregate_version)) ordered
   WHERE published_at < before OR aggregate_version <> version_before + 1`;

async function checkInvariants({ databaseUrl }: ChaosStack, problems: string[]): Promise<void> {
  const database = createDatabase({ url: databaseUrl, poolMax: 2, applicationName: "chaos" });
  try {
    const { invariants } = await verify(database, { graceSeconds: 1 });
    for (const { number, name, ok, violations, examples } of invariants) {
      if (!ok)
        problems.push(
          `invariant ${number} (${name}): ${violations}, such as ${examples.join("; ")}`,
        );
    }
  } finally {
    await database.close();
  }
}

async function checkDeadLetters(stack: ChaosStack, problems: string[]): Promise<void> {
  const sqs = new SQSClient({
    endpoint: stack.awsEndpointUrl,
    region: "us-east-1",
    credentials: { accessKeyId: "local", secretAccessKey: "local" },
    useQueueUrlAsEndpoint: false,
  });
  const command = new GetQueueAttributesCommand({
    QueueUrl: stack.ledgerDlqUrl,
    AttributeNames: ["ApproximateNumberOfMessages"],
  });
  const { Attributes } = await sqs.send(command);
  sqs.destroy();
  const count = Attributes?.["ApproximateNumberOfMessages"] ?? "0";
  if (count !== "0") problems.push(`the dead-letter queue holds ${count} messages`);
}
