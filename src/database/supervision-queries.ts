import type { PartStatus, PaymentParameters, PaymentStatus } from "../domain/payment.ts";
import type { Tx } from "./database.ts";

/** What a payment's workflow was started with, read back from its rows. */
export interface RecordedPayment extends PaymentParameters {
  readonly paymentId: string;
  readonly fingerprint: string;
  readonly requestId: string;
}

/** A payment as a new run takes it up: the request that recorded it, and how it stands. */
export interface TakenUpPayment {
  readonly recorded: RecordedPayment;
  readonly status: PaymentStatus;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
}

/** What a refund's workflow was started with, read back from its rows. */
export interface RecordedRefund {
  readonly refundId: string;
  readonly paymentId: string;
  readonly merchant: string;
  readonly idempotencyKey: string;
  readonly amountMinor: string | null;
  readonly currency: string | null;
  readonly reason: string | null;
  readonly fingerprint: string;
  readonly requestId: string;
}

/** An event for the ledger that was published and never came in: the queue or its workflow lost it. */
export interface LostMessage {
  readonly messageId: string;
  readonly type: string;
  readonly payload: string;
}

export interface Late<Recorded> {
  readonly recorded: Recorded;
  readonly lost: readonly LostMessage[];
}

/** A payment that is late; overdue where it has stood still for longer than a person should have to find out by himself. */
export interface LatePayment extends Late<RecordedPayment> {
  readonly isOverdue: boolean;
  /** Overdue for three times as long: what people and its run were told helped nothing. */
  readonly isStranded: boolean;
}

export interface LatePage {
  readonly olderThanSeconds: number;
  /** Only ids after this one. */
  readonly after: string;
  readonly limit: number;
}

const RECORDED_PAYMENT = `p.id AS "paymentId", p.merchant, p.idempotency_key AS "idempotencyKey", p.source, p.destination,
                    p.amount AS "amountMinor", p.currency, p.capture, p.description, k.fingerprint, k.request_id AS "requestId",
                    round(extract(epoch FROM p.expires_at - p.created_at))::integer AS "expiresInSeconds"`;

/** Published for longer than $1 seconds and not in the inbox. */
const LOST_MESSAGES = `coalesce(jsonb_agg(jsonb_build_object('messageId', o.id, 'type', o.type, 'payload', o.payload::text)), '[]') AS lost
                       FROM remit.outbox o
                      WHERE o.status = 'PUBLISHED'
                        AND o.published_at < clock_timestamp() - $1 * interval '1 second'
                        AND NOT EXISTS (SELECT FROM remit.inbox i WHERE i.consumer = 'ledger' AND i.message_id = o.id)`;

/**
 * Payments that aren't at their end and are older than any that still runs its normal course; oldest first. Either those
 * that are due, or the authorizations that may rightly wait for days.
 */
export async function latePayments(
  tx: Tx,
  {
    olderThanSeconds,
    after,
    limit,
    due,
    overdueAfterSeconds,
  }: LatePage & { due: boolean; overdueAfterSeconds: number },
): Promise<LatePayment[]> {
  const rows = await tx.run<RecordedRow & Pick<LatePayment, "lost" | "isOverdue" | "isStranded">>(
    {
      name: "late_payments",
      text: `SELECT ${RECORDED_PAYMENT}, events.lost,
                    (p.status <> 'authorized' OR p.expires_at < clock_timestamp())
                    AND p.updated_at < clock_timestamp() - $5 * interval '1 second' AS "isOverdue",
                    greatest(p.expires_at, p.updated_at) < clock_timestamp() - 3 * $5 * interval '1 second' AS "isStranded"
               FROM remit.payments p
               JOIN remit.idempotency_keys k ON k.merchant = p.merchant AND k.key = p.idempotency_key
              CROSS JOIN LATERAL (
                    SELECT ${LOST_MESSAGES}
                        AND o.aggregate_type = 'payment'
                        AND o.aggregate_id = p.id::text
                        AND o.type = CASE p.capture WHEN 'manual' THEN 'payment.captured' ELSE 'payment.created' END) events
              WHERE p.status IN ('pending', 'authorized', 'captured')
                AND p.created_at < clock_timestamp() - $1 * interval '1 second'
                AND p.id > $2
                AND (p.status = 'authorized' AND p.expires_at > clock_timestamp()) <> $4
              ORDER BY p.id
              LIMIT $3`,
    },
    [olderThanSeconds, after, limit, due, overdueAfterSeconds],
  );
  return rows.map(({ lost, isOverdue, isStranded, ...row }) => ({
    recorded: toRecorded(row),
    lost,
    isOverdue,
    isStranded,
  }));
}

/** The same of refunds. */
export async function lateRefunds(
  tx: Tx,
  { olderThanSeconds, after, limit }: LatePage,
): Promise<Late<RecordedRefund>[]> {
  const rows = await tx.run<
    RecordedRefund & Pick<Late<RecordedRefund>, "lost"> & Record<string, unknown>
  >(
    {
      name: "late_refunds",
      text: `SELECT r.id AS "refundId", p.merchant, r.idempotency_key AS "idempotencyKey", r.payment_id AS "paymentId", r.reason,
                    k.outcome #>> '{parameters,amountMinor}' AS "amountMinor", k.outcome #>> '{parameters,currency}' AS currency,
                    k.fingerprint, k.request_id AS "requestId", events.lost
               FROM remit.refunds r
               JOIN remit.payments p ON p.id = r.payment_id
               JOIN remit.idempotency_keys k ON k.merchant = p.merchant AND k.key = r.idempotency_key
              CROSS JOIN LATERAL (
                    SELECT ${LOST_MESSAGES}
                        AND o.aggregate_type = 'refund'
                        AND o.aggregate_id = r.id::text
                        AND o.type = 'refund.created') events
              WHERE r.status = 'pending'
                AND r.created_at < clock_timestamp() - $1 * interval '1 second'
                AND r.id > $2
              ORDER BY r.id
              LIMIT $3`,
    },
    [olderThanSeconds, after, limit],
  );
  return rows.map(({ lost, ...recorded }) => ({ recorded, lost }));
}

/** Null where there is no such payment. */
export async function takeUpPayment(tx: Tx, paymentId: string): Promise<TakenUpPayment | null> {
  const [row] = await tx.run<
    RecordedRow & { status: PaymentStatus; createdAt: Date; expiresAt: Date | null }
  >(
    {
      name: "take_up_payment",
      text: `SELECT ${RECORDED_PAYMENT}, p.status, p.created_at AS "createdAt", p.expires_at AS "expiresAt"
               FROM remit.payments p
               JOIN remit.idempotency_keys k ON k.merchant = p.merchant AND k.key = p.idempotency_key
              WHERE p.id = $1`,
    },
    [paymentId],
  );
  if (row === undefined) return null;
  const { status, createdAt, expiresAt, ...recorded } = row;
  return { recorded: toRecorded(recorded), status, createdAt, expiresAt };
}

export async function readStanding(
  tx: Tx,
  paymentId: string,
): Promise<{ status: PaymentStatus; failureCode: string | null } | null> {
  const [row] = await tx.run<{ status: PaymentStatus; failureCode: string | null }>(
    {
      name: "read_standing",
      text: `SELECT status, failure_code AS "failureCode"
               FROM remit.payments
              WHERE id = $1`,
    },
    [paymentId],
  );
  return row ?? null;
}

export interface Key {
  readonly merchant: string;
  readonly key: string;
}

/** Of these keys those whose payment is at its end. */
export async function endedPayments(
  tx: Tx,
  keys: readonly Key[],
): Promise<(Key & { status: PaymentStatus; failureCode: string | null })[]> {
  return await tx.run(
    {
      name: "ended_payments",
      text: `SELECT p.merchant, p.idempotency_key AS key, p.status, p.failure_code AS "failureCode"
               FROM unnest($1::text[], $2::text[]) AS asked (merchant, key)
               JOIN remit.payments p ON p.merchant = asked.merchant AND p.idempotency_key = asked.key
              WHERE p.status IN ('settled', 'failed', 'cancelled', 'voided', 'expired')`,
    },
    columns(keys),
  );
}

/** Of these keys those whose refund is at its end. */
export async function endedRefunds(
  tx: Tx,
  keys: readonly Key[],
): Promise<(Key & { status: Exclude<PartStatus, "pending">; failureCode: string | null })[]> {
  return await tx.run(
    {
      name: "ended_refunds",
      text: `SELECT k.merchant, k.key, r.status, r.failure_code AS "failureCode"
               FROM unnest($1::text[], $2::text[]) AS asked (merchant, key)
               JOIN remit.idempotency_keys k ON k.merchant = asked.merchant AND k.key = asked.key
               JOIN remit.refunds r ON r.id = (k.outcome ->> 'partId')::uuid
              WHERE r.status <> 'pending'`,
    },
    columns(keys),
  );
}

/** Of these keys those that PostgreSQL has never heard of, or has forgotten: a failover can lose commits that were answered. */
export async function unrecordedKeys(tx: Tx, keys: readonly Key[]): Promise<Key[]> {
  if (keys.length === 0) return [];
  return await tx.run<Key & Record<string, unknown>>(
    {
      name: "unrecorded_keys",
      text: `SELECT asked.merchant, asked.key
               FROM unnest($1::text[], $2::text[]) AS asked (merchant, key)
              WHERE NOT EXISTS (SELECT FROM remit.idempotency_keys k WHERE k.merchant = asked.merchant AND k.key = asked.key)`,
    },
    columns(keys),
  );
}

function columns(keys: readonly Key[]): string[][] {
  return [keys.map(({ merchant }) => merchant), keys.map(({ key }) => key)];
}

type RecordedRow = Omit<RecordedPayment, "expiresInSeconds"> & {
  readonly expiresInSeconds: number | null;
};

function toRecorded({ expiresInSeconds, ...recorded }: RecordedRow): RecordedPayment {
  return { ...recorded, ...(expiresInSeconds === null ? {} : { expiresInSeconds }) };
}
