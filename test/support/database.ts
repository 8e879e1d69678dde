import { randomBytes, randomUUID } from "node:crypto";
import { Client, Pool } from "pg";
import type { QueryResultRow } from "pg";
import { v7 as uuidv7 } from "uuid";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { createAccount, getAccount } from "../../src/database/account-queries.ts";
import { createDatabase } from "../../src/database/database.ts";
import type { Database } from "../../src/database/database.ts";
import { createLoginRole } from "../../src/database/roles.ts";
import { verify } from "../../src/database/invariants.ts";
import type { PaymentInput } from "../../src/workflows/messages.ts";
import { fingerprintOf, operationFingerprint } from "../../src/domain/fingerprint.ts";
import { testServices } from "./services.ts";

/** A database of this test file's own: the application's pool, and the superuser's for planting and looking. */
export interface TestDatabase {
  readonly app: Database;
  readonly url: string;
  readonly adminUrl: string;
  /** Runs SQL as the superuser. */
  readonly admin: <Row extends QueryResultRow>(text: string, values?: unknown[]) => Promise<Row[]>;
}

/** Clones the migrated template before the file's tests and drops the clone after them. */
export function useDatabase({
  poolMax = Number(process.env["REMIT_TEST_POOL_MAX"] ?? 10),
}: { poolMax?: number } = {}): () => TestDatabase {
  let current: (TestDatabase & { drop(): Promise<void> }) | undefined;
  beforeAll(async () => {
    current = await cloneDatabase(poolMax);
  });
  afterAll(async () => {
    await current?.drop();
  });
  return () => {
    if (current === undefined) throw new Error("useDatabase: only inside of a test");
    return current;
  };
}

export async function cloneDatabase(
  poolMax: number,
): Promise<TestDatabase & { drop(): Promise<void> }> {
  const services = testServices();
  const name = `test_${randomBytes(6).toString("hex")}`;
  const password = randomBytes(12).toString("hex");
  await asSuperuser(services.REMIT_TEST_ADMIN_DATABASE_URL, [
    `CREATE DATABASE ${name} TEMPLATE ${services.REMIT_TEST_TEMPLATE}`,
  ]);
  const adminUrl = withDatabase(services.REMIT_TEST_ADMIN_DATABASE_URL, name);
  await createLoginRole({ adminDatabaseUrl: adminUrl, role: name, password });
  const url = withUser(adminUrl, { user: name, password });
  const app = createDatabase({ url, poolMax, applicationName: "test" });
  const adminPool = new Pool({ connectionString: adminUrl, max: 5 });
  adminPool.on("error", () => undefined);
  return {
    app,
    url,
    adminUrl,
    admin: async <Row extends QueryResultRow>(text: string, values: unknown[] = []) =>
      (await adminPool.query<Row>(text, values)).rows,
    drop: async () => {
      await app.close();
      await adminPool.end();
      await asSuperuser(services.REMIT_TEST_ADMIN_DATABASE_URL, [
        `DROP DATABASE ${name} WITH (FORCE)`,
        `DROP ROLE ${name}`,
      ]);
    },
  };
}

/** A request for 12.50 EUR from alice to shop with a key of its own, unless said. */
export function aPayment(overrides: Partial<PaymentInput> = {}): PaymentInput {
  const parameters = {
    merchant: "default",
    idempotencyKey: `key-${randomUUID()}`,
    source: "alice",
    destination: "shop",
    amountMinor: "1250",
    currency: "EUR",
    capture: "automatic" as const,
    description: null,
    ...overrides,
  };
  return {
    paymentId: uuidv7(),
    requestId: randomUUID(),
    fingerprint: fingerprintOf(parameters),
    notAfter: new Date(Date.now() + 60_000).toISOString(),
    ...parameters,
  };
}

/** Creates an account and books money into it through the ordinary way. */
export async function fundedAccount(
  { app, admin }: TestDatabase,
  accountId: string,
  { amountMinor = 0n, currency = "EUR", kind = "customer" as "customer" | "merchant" } = {},
): Promise<string> {
  await createAccount(app, { accountId, currency, kind, overdraftMinor: 0n });
  if (amountMinor > 0n) {
    const input = aPayment({
      source: `world:${currency}`,
      destination: accountId,
      amountMinor: amountMinor.toString(),
      currency,
    });
    const result = await recordPayment(app, input);
    if (result.outcome !== "recorded") throw new Error(`funding was ${result.outcome}`);
    const { applyLedgerEntries } = await import("../../src/activities/apply-ledger-entries.ts");
    await applyLedgerEntries(app, await createdMessage(admin, input.paymentId));
  }
  return accountId;
}

/** Two accounts of a test's own: 100.00 EUR with the payer, nothing with the seller. */
export async function aPair(database: TestDatabase): Promise<[payer: string, seller: string]> {
  return [
    await fundedAccount(database, `payer-${uuidv7()}`, { amountMinor: 10_000n }),
    await fundedAccount(database, `seller-${uuidv7()}`, { kind: "merchant" }),
  ];
}

/** What an account has and what of it is reserved, in minor units. */
export async function moneyOf(
  { app }: TestDatabase,
  accountId: string,
): Promise<{ posted: bigint; held: bigint }> {
  const account = await getAccount(app, accountId);
  return { posted: account?.postedMinor ?? 0n, held: account?.heldMinor ?? 0n };
}

/** Takes every event away, with its number; past the rules, which would refuse it. */
export async function emptyOutbox({ admin }: TestDatabase): Promise<void> {
  await admin(
    "SET session_replication_role = replica; DELETE FROM remit.outbox; DELETE FROM remit.outbox_heads; SET session_replication_role = origin",
  );
}

/** A request on a payment under a key of its own, unless said. */
export function anOperation<Parameters extends object>(
  paymentId: string,
  parameters: Parameters,
): Parameters & {
  paymentId: string;
  merchant: string;
  idempotencyKey: string;
  requestId: string;
  fingerprint: string;
  notAfter: string;
} {
  const request = {
    paymentId,
    merchant: "default",
    idempotencyKey: `op-${randomUUID()}`,
    requestId: randomUUID(),
    notAfter: new Date(Date.now() + 60_000).toISOString(),
    ...parameters,
  };
  return { fingerprint: operationFingerprintOf(request), ...request };
}

/** As the client makes it; an operation is known by the parameter that no other one has. */
function operationFingerprintOf(
  request: Readonly<Record<string, unknown>> & { idempotencyKey: string; paymentId: string },
): string {
  const { idempotencyKey, paymentId } = request;
  const compared = (...names: string[]): Record<string, string | boolean | null> => ({
    idempotencyKey,
    paymentId,
    ...Object.fromEntries(names.map((each) => [each, request[each] as string | boolean | null])),
  });
  if ("final" in request) {
    return operationFingerprint("capture", compared("amountMinor", "currency", "final"));
  }
  return "reason" in request
    ? operationFingerprint("refund", compared("amountMinor", "currency", "reason"))
    : operationFingerprint("void", compared());
}

/** The newest message of this type about a payment, as the broker would carry it. */
export async function newestMessage(
  admin: TestDatabase["admin"],
  { paymentId, type }: { paymentId: string; type: string },
): Promise<{ messageId: string; type: string; payload: string }> {
  const [row] = await admin<{ id: string; type: string; payload: string }>(
    `SELECT id, type, payload::text AS payload
       FROM remit.outbox
      WHERE type = $2 AND payload #>> '{data,paymentId}' = $1
      ORDER BY id DESC
      LIMIT 1`,
    [paymentId, type],
  );
  if (row === undefined) throw new Error(`payment ${paymentId} has no ${type}`);
  return { messageId: row.id, type: row.type, payload: row.payload };
}

/** The payment.created message as the broker would carry it. */
export async function createdMessage(
  admin: TestDatabase["admin"],
  paymentId: string,
): Promise<{ messageId: string; type: string; payload: string }> {
  const [row] = await admin<{ id: string; type: string; payload: string }>(
    "SELECT id, type, payload::text AS payload FROM remit.outbox WHERE aggregate_id = $1 AND aggregate_version = 1",
    [paymentId],
  );
  if (row === undefined) throw new Error(`payment ${paymentId} has no first event`);
  return { messageId: row.id, type: row.type, payload: row.payload };
}

/** Fails with the broken rows in words. */
export async function expectInvariants({ app }: TestDatabase, graceSeconds = 60): Promise<void> {
  const report = await verify(app, { graceSeconds });
  const broken = report.invariants.filter(({ ok }) => !ok);
  expect(broken.map(({ number, examples }) => ({ number, examples }))).toEqual([]);
}

async function asSuperuser(url: string, statements: readonly string[]): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

function withDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  return changed.href;
}

function withUser(url: string, { user, password }: { user: string; password: string }): string {
  const changed = new URL(url);
  changed.username = user;
  changed.password = password;
  return changed.href;
}
