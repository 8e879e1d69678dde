import { and, desc, eq } from "drizzle-orm";
import { query } from "./database.ts";
import type { Database } from "./database.ts";
import { payments } from "./schema.ts";

/** A payment as it is now; amounts in minor units. */
export interface PaymentView {
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly status: string;
  readonly amountMinor: bigint;
  readonly currency: string;
  readonly source: string;
  readonly destination: string;
  readonly capture: string;
  readonly capturedMinor: bigint;
  readonly refundedMinor: bigint;
  readonly failureCode: string | null;
  readonly description: string | null;
  readonly createdAt: Date;
  readonly settledAt: Date | null;
  /** With manual capture. */
  readonly expiresAt: Date | null;
}

/** `paymentId` must be a UUID. */
export async function getPayment(
  database: Database,
  paymentId: string,
): Promise<PaymentView | null> {
  const [row] = await query(() =>
    database.orm.select().from(payments).where(eq(payments.id, paymentId)),
  );
  return row === undefined ? null : toView(row);
}

export async function findPaymentByKey(
  database: Database,
  { merchant, key }: { merchant: string; key: string },
): Promise<PaymentView | null> {
  const [row] = await query(() =>
    database.orm
      .select()
      .from(payments)
      .where(and(eq(payments.merchant, merchant), eq(payments.idempotencyKey, key))),
  );
  return row === undefined ? null : toView(row);
}

export interface PaymentFilter {
  readonly status?: string;
  readonly merchant?: string;
  readonly limit: number;
}

/** Newest first: ids are UUIDv7, so their order is that of time. */
export async function listPayments(
  database: Database,
  { status, merchant, limit }: PaymentFilter,
): Promise<PaymentView[]> {
  const rows = await query(() =>
    database.orm
      .select()
      .from(payments)
      .where(
        and(
          status === undefined ? undefined : eq(payments.status, status),
          merchant === undefined ? undefined : eq(payments.merchant, merchant),
        ),
      )
      .orderBy(desc(payments.id))
      .limit(limit),
  );
  return rows.map(toView);
}

function toView(row: typeof payments.$inferSelect): PaymentView {
  return {
    paymentId: row.id,
    merchant: row.merchant,
    idempotencyKey: row.idempotencyKey,
    status: row.status,
    amountMinor: row.amount,
    currency: row.currency,
    source: row.source,
    destination: row.destination,
    capture: row.capture,
    capturedMinor: row.capturedAmount,
    refundedMinor: row.refundedAmount,
    failureCode: row.failureCode,
    description: row.description,
    createdAt: row.createdAt,
    settledAt: row.settledAt,
    expiresAt: row.expiresAt,
  };
}
