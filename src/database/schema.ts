import {
  bigint,
  boolean,
  char,
  integer,
  jsonb,
  pgSchema,
  primaryKey,
  smallint,
  text,
  timestamp,
  uuid,
} from "drizzle-orm/pg-core";

/**
 * The columns as the migrations make them, for the typed query builder; test/database/schema.test.ts compares them with
 * the database. Constraints, triggers and grants stand in migrations/ only.
 */
export const remitSchema = pgSchema("remit");

const money = (name: string) => bigint(name, { mode: "bigint" });
const time = (name: string) => timestamp(name, { withTimezone: true });

export const accounts = remitSchema.table("accounts", {
  id: text("id").primaryKey(),
  kind: text("kind").notNull(),
  currency: char("currency", { length: 3 }).notNull(),
  status: text("status").notNull().default("active"),
  posted: money("posted").notNull(),
  held: money("held").notNull(),
  overdraft: money("overdraft").notNull(),
  version: money("version").notNull(),
  metadata: jsonb("metadata").notNull(),
  createdAt: time("created_at").notNull(),
});

export const payments = remitSchema.table("payments", {
  id: uuid("id").primaryKey(),
  merchant: text("merchant").notNull(),
  idempotencyKey: text("idempotency_key").notNull(),
  source: text("source").notNull(),
  destination: text("destination").notNull(),
  amount: money("amount").notNull(),
  currency: char("currency", { length: 3 }).notNull(),
  capture: text("capture").notNull(),
  status: text("status").notNull(),
  capturedAmount: money("captured_amount").notNull(),
  refundedAmount: money("refunded_amount").notNull(),
  failureCode: text("failure_code"),
  description: text("description"),
  metadata: jsonb("metadata").notNull(),
  expiresAt: time("expires_at"),
  version: money("version").notNull(),
  createdAt: time("created_at").notNull(),
  updatedAt: time("updated_at").notNull(),
  settledAt: time("settled_at"),
});

export const captures = remitSchema.table("captures", {
  id: uuid("id").primaryKey(),
  paymentId: uuid("payment_id").notNull(),
  amount: money("amount").notNull(),
  final: boolean("final").notNull(),
  status: text("status").notNull(),
  failureCode: text("failure_code"),
  createdAt: time("created_at").notNull(),
  settledAt: time("settled_at"),
  idempotencyKey: text("idempotency_key").notNull(),
});

export const refunds = remitSchema.table("refunds", {
  id: uuid("id").primaryKey(),
  paymentId: uuid("payment_id").notNull(),
  amount: money("amount").notNull(),
  currency: char("currency", { length: 3 }).notNull(),
  status: text("status").notNull(),
  reason: text("reason"),
  failureCode: text("failure_code"),
  createdAt: time("created_at").notNull(),
  settledAt: time("settled_at"),
  idempotencyKey: text("idempotency_key").notNull(),
});

export const holds = remitSchema.table("holds", {
  id: uuid("id").primaryKey(),
  accountId: text("account_id").notNull(),
  paymentId: uuid("payment_id").notNull(),
  refundId: uuid("refund_id"),
  amount: money("amount").notNull(),
  remaining: money("remaining").notNull(),
  status: text("status").notNull(),
  createdAt: time("created_at").notNull(),
  closedAt: time("closed_at"),
});

export const idempotencyKeys = remitSchema.table(
  "idempotency_keys",
  {
    merchant: text("merchant").notNull(),
    key: text("key").notNull(),
    operation: text("operation").notNull(),
    fingerprint: text("fingerprint").notNull(),
    requestId: text("request_id").notNull(),
    outcome: jsonb("outcome").notNull(),
    createdAt: time("created_at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.merchant, table.key] })],
);

export const outboxHeads = remitSchema.table(
  "outbox_heads",
  {
    aggregateType: text("aggregate_type").notNull(),
    aggregateId: text("aggregate_id").notNull(),
    shard: smallint("shard").notNull(),
    lastVersion: money("last_version").notNull(),
    purgedVersion: money("purged_version").notNull(),
  },
  (table) => [primaryKey({ columns: [table.aggregateType, table.aggregateId] })],
);

export const outbox = remitSchema.table("outbox", {
  id: uuid("id").primaryKey(),
  aggregateType: text("aggregate_type").notNull(),
  aggregateId: text("aggregate_id").notNull(),
  aggregateVersion: money("aggregate_version").notNull(),
  type: text("type").notNull(),
  payload: jsonb("payload").notNull(),
  headers: jsonb("headers").notNull(),
  shard: smallint("shard").notNull(),
  status: text("status").notNull(),
  claims: integer("claims").notNull(),
  attempts: integer("attempts").notNull(),
  nextAttemptAt: time("next_attempt_at").notNull(),
  leaseToken: uuid("lease_token"),
  leaseUntil: time("lease_until"),
  brokerMessageId: text("broker_message_id"),
  lastError: text("last_error"),
  createdAt: time("created_at").notNull(),
  publishedAt: time("published_at"),
});

export const inbox = remitSchema.table(
  "inbox",
  {
    consumer: text("consumer").notNull(),
    messageId: uuid("message_id").notNull(),
    type: text("type").notNull(),
    payload: jsonb("payload").notNull(),
    receivedAt: time("received_at").notNull(),
    processedAt: time("processed_at"),
    outcome: text("outcome"),
    error: text("error"),
    deliveries: integer("deliveries").notNull().default(1),
  },
  (table) => [primaryKey({ columns: [table.consumer, table.messageId] })],
);

export const ledgerTransactions = remitSchema.table("ledger_transactions", {
  id: uuid("id").primaryKey(),
  messageId: uuid("message_id").notNull(),
  paymentId: uuid("payment_id").notNull(),
  captureId: uuid("capture_id"),
  refundId: uuid("refund_id"),
  kind: text("kind").notNull(),
  xact: text("xact").notNull(),
  createdAt: time("created_at").notNull(),
});

export const ledgerEntries = remitSchema.table("ledger_entries", {
  id: uuid("id").primaryKey(),
  transactionId: uuid("transaction_id").notNull(),
  accountId: text("account_id").notNull(),
  direction: text("direction").notNull(),
  amount: money("amount").notNull(),
  currency: char("currency", { length: 3 }).notNull(),
  balanceAfter: money("balance_after").notNull(),
  accountVersion: money("account_version").notNull(),
  createdAt: time("created_at").notNull(),
});

export const operatorActions = remitSchema.table("operator_actions", {
  id: uuid("id").primaryKey(),
  action: text("action").notNull(),
  messageId: uuid("message_id"),
  actor: text("actor").notNull(),
  reason: text("reason").notNull(),
  details: jsonb("details").notNull(),
  createdAt: time("created_at").notNull(),
});

export const reconciliations = remitSchema.table("reconciliations", {
  id: uuid("id").primaryKey(),
  scope: text("scope").notNull(),
  startedAt: time("started_at").notNull(),
  finishedAt: time("finished_at").notNull(),
  ok: boolean("ok").notNull(),
  pendingBeyondGrace: money("pending_beyond_grace").notNull(),
  invariants: jsonb("invariants").notNull(),
});

export const findings = remitSchema.table("findings", {
  id: uuid("id").primaryKey(),
  invariant: smallint("invariant").notNull(),
  what: text("what").notNull(),
  firstSeenAt: time("first_seen_at").notNull(),
  lastSeenAt: time("last_seen_at").notNull(),
  clearedAt: time("cleared_at"),
  acknowledgedAt: time("acknowledged_at"),
  acknowledgedBy: text("acknowledged_by"),
  reason: text("reason"),
});
