import { inTransaction } from "./database.ts";
import type { Database, Tx } from "./database.ts";
import { tracePayment } from "./payment-trace.ts";
import type { PaymentTrace } from "./payment-trace.ts";

/** All that PostgreSQL knows of one payment, as of one moment; amounts in minor units. */
export interface PaymentFacts extends PaymentTrace {
  readonly readAt: Date;
  readonly payment: PaymentFact;
  readonly captures: readonly CaptureFact[];
  readonly refunds: readonly RefundFact[];
  readonly holds: readonly HoldFact[];
  readonly accounts: readonly AccountFact[];
  /** What people did to its messages, oldest first. */
  readonly operatorActions: readonly OperatorFact[];
}

export interface OperatorFact {
  readonly at: Date;
  /** Such as `outbox.skip`. */
  readonly action: string;
  readonly actor: string;
  readonly reason: string;
  readonly messageId: string;
}

export interface PaymentFact {
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly source: string;
  readonly destination: string;
  readonly amountMinor: bigint;
  readonly currency: string;
  readonly capture: string;
  readonly status: string;
  readonly capturedMinor: bigint;
  readonly refundedMinor: bigint;
  readonly failureCode: string | null;
  readonly description: string | null;
  readonly expiresAt: Date | null;
  readonly createdAt: Date;
  readonly settledAt: Date | null;
  /** Up to this version its events were purged from the outbox. */
  readonly purgedVersion: number;
}

export interface CaptureFact {
  readonly captureId: string;
  readonly idempotencyKey: string;
  readonly amountMinor: bigint;
  readonly final: boolean;
  readonly status: string;
  readonly failureCode: string | null;
  readonly createdAt: Date;
  readonly settledAt: Date | null;
}

export interface RefundFact {
  readonly refundId: string;
  readonly idempotencyKey: string;
  readonly amountMinor: bigint;
  readonly status: string;
  readonly reason: string | null;
  readonly failureCode: string | null;
  readonly createdAt: Date;
  readonly settledAt: Date | null;
}

export interface HoldFact {
  readonly accountId: string;
  readonly refundId: string | null;
  readonly amountMinor: bigint;
  readonly remainingMinor: bigint;
  readonly closedAt: Date | null;
}

export interface AccountFact {
  readonly accountId: string;
  readonly status: string;
  readonly postedMinor: bigint;
  readonly heldMinor: bigint;
  readonly availableMinor: bigint;
}

/** Reads them in one snapshot, so that they agree with each other; null where there is no such payment. */
export async function readPaymentFacts(
  database: Database,
  paymentId: string,
): Promise<PaymentFacts | null> {
  return await inTransaction(database, async (tx) => {
    await tx.run(
      { name: "facts_snapshot", text: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY" },
      [],
    );
    const found = await readPayment(tx, paymentId);
    if (found === null) return null;
    const { readAt, payment } = found;
    return {
      readAt,
      payment,
      captures: await readCaptures(tx, paymentId),
      refunds: await readRefunds(tx, paymentId),
      holds: await readHolds(tx, paymentId),
      accounts: await readAccounts(tx, payment),
      operatorActions: await readOperatorActions(tx, paymentId),
      ...(await tracePayment(tx, paymentId)),
    };
  });
}

type Stored<Fact, Amounts extends keyof Fact> = Omit<Fact, Amounts> & Record<Amounts, string>;

async function readPayment(
  tx: Tx,
  paymentId: string,
): Promise<{ readAt: Date; payment: PaymentFact } | null> {
  type Row = Stored<
    PaymentFact,
    "amountMinor" | "capturedMinor" | "refundedMinor" | "purgedVersion"
  > & { readAt: Date };
  const [row] = await tx.run<Row>(
    {
      name: "facts_payment",
      text: `SELECT clock_timestamp() AS "readAt",
                    p.id AS "paymentId", p.merchant, p.idempotency_key AS "idempotencyKey", p.source, p.destination,
                    p.amount AS "amountMinor", p.currency, p.capture, p.status, p.captured_amount AS "capturedMinor",
                    p.refunded_amount AS "refundedMinor", p.failure_code AS "failureCode", p.description,
                    p.expires_at AS "expiresAt", p.created_at AS "createdAt", p.settled_at AS "settledAt",
                    coalesce(h.purged_version, 0) AS "purgedVersion"
               FROM remit.payments p
               LEFT JOIN remit.outbox_heads h ON h.aggregate_type = 'payment' AND h.aggregate_id = p.id::text
              WHERE p.id = $1`,
    },
    [paymentId],
  );
  if (row === undefined) return null;
  const { readAt, ...stored } = row;
  const payment = {
    ...stored,
    amountMinor: BigInt(stored.amountMinor),
    capturedMinor: BigInt(stored.capturedMinor),
    refundedMinor: BigInt(stored.refundedMinor),
    purgedVersion: Number(stored.purgedVersion),
  };
  return { readAt, payment };
}

async function readCaptures(tx: Tx, paymentId: string): Promise<CaptureFact[]> {
  const rows = await tx.run<Stored<CaptureFact, "amountMinor">>(
    {
      name: "facts_captures",
      text: `SELECT id AS "captureId", idempotency_key AS "idempotencyKey", amount AS "amountMinor", final, status,
                    failure_code AS "failureCode", created_at AS "createdAt", settled_at AS "settledAt"
               FROM remit.captures
              WHERE payment_id = $1
              ORDER BY id`,
    },
    [paymentId],
  );
  return rows.map((row) => ({ ...row, amountMinor: BigInt(row.amountMinor) }));
}

async function readRefunds(tx: Tx, paymentId: string): Promise<RefundFact[]> {
  const rows = await tx.run<Stored<RefundFact, "amountMinor">>(
    {
      name: "facts_refunds",
      text: `SELECT id AS "refundId", idempotency_key AS "idempotencyKey", amount AS "amountMinor", status, reason,
                    failure_code AS "failureCode", created_at AS "createdAt", settled_at AS "settledAt"
               FROM remit.refunds
              WHERE payment_id = $1
              ORDER BY id`,
    },
    [paymentId],
  );
  return rows.map((row) => ({ ...row, amountMinor: BigInt(row.amountMinor) }));
}

async function readHolds(tx: Tx, paymentId: string): Promise<HoldFact[]> {
  const rows = await tx.run<Stored<HoldFact, "amountMinor" | "remainingMinor">>(
    {
      name: "facts_holds",
      text: `SELECT account_id AS "accountId", refund_id AS "refundId", amount AS "amountMinor",
                    remaining AS "remainingMinor", closed_at AS "closedAt"
               FROM remit.holds
              WHERE payment_id = $1
              ORDER BY id`,
    },
    [paymentId],
  );
  return rows.map((row) => ({
    ...row,
    amountMinor: BigInt(row.amountMinor),
    remainingMinor: BigInt(row.remainingMinor),
  }));
}

/** The source first. */
async function readAccounts(tx: Tx, { source, destination }: PaymentFact): Promise<AccountFact[]> {
  const rows = await tx.run<Stored<AccountFact, "postedMinor" | "heldMinor" | "availableMinor">>(
    {
      name: "facts_accounts",
      text: `SELECT id AS "accountId", status, posted AS "postedMinor", held AS "heldMinor",
                    posted - held + overdraft AS "availableMinor"
               FROM remit.accounts
              WHERE id IN ($1, $2)
              ORDER BY id = $2`,
    },
    [source, destination],
  );
  return rows.map((row) => ({
    ...row,
    postedMinor: BigInt(row.postedMinor),
    heldMinor: BigInt(row.heldMinor),
    availableMinor: BigInt(row.availableMinor),
  }));
}

/** What stands under a client's key, whichever operation it was for. */
export interface KeyFact {
  readonly merchant: string;
  readonly key: string;
  readonly operation: string;
  readonly createdAt: Date;
  readonly paymentId: string | null;
  /** Null where the request was accepted. */
  readonly refusal: { readonly code: string; readonly message: string } | null;
  /** As the request was; of a refused payment this is all that is left of it. */
  readonly parameters: Readonly<Record<string, unknown>>;
}

/** Null where nobody has ever used this key. */
export async function readKeyFact(
  tx: Tx,
  { merchant, key }: { merchant: string; key: string },
): Promise<KeyFact | null> {
  const [row] = await tx.run<{
    operation: string;
    createdAt: Date;
    outcome: {
      decision: string;
      paymentId?: string;
      code?: string;
      message?: string;
      parameters?: Record<string, unknown>;
    };
  }>(
    {
      name: "facts_key",
      text: `SELECT operation, created_at AS "createdAt", outcome
               FROM remit.idempotency_keys
              WHERE merchant = $1
                AND key = $2`,
    },
    [merchant, key],
  );
  if (row === undefined) return null;
  const { decision, paymentId, code = "", message = "", parameters = {} } = row.outcome;
  const isRefused = decision === "refused";
  return {
    merchant,
    key,
    operation: row.operation,
    createdAt: row.createdAt,
    // A refused pay has prepared an id that no payment has; a refused capture names a payment that exists.
    paymentId: isRefused && row.operation === "pay" ? null : (paymentId ?? null),
    refusal: isRefused ? { code, message } : null,
    parameters,
  };
}

async function readOperatorActions(tx: Tx, paymentId: string): Promise<OperatorFact[]> {
  return await tx.run<OperatorFact & Record<string, unknown>>(
    {
      name: "facts_operator_actions",
      text: `SELECT a.created_at AS at, a.action, a.actor, a.reason, a.message_id AS "messageId"
               FROM remit.outbox o
               JOIN remit.operator_actions a ON a.message_id = o.id
              WHERE o.aggregate_type = 'payment' AND o.aggregate_id = $1::uuid::text
                 OR o.aggregate_type = 'refund'
                    AND o.aggregate_id IN (SELECT r.id::text FROM remit.refunds r WHERE r.payment_id = $1::uuid)
              ORDER BY a.id`,
    },
    [paymentId],
  );
}
