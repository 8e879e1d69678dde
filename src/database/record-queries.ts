import type { AccountState, PaymentState } from "../domain/decisions.ts";
import type { ErrorCode } from "../domain/errors.ts";
import type { OutboxEvent } from "../domain/events.ts";
import type { PaymentParameters, PaymentStatus, RecordedParameters } from "../domain/payment.ts";
import type { Tx } from "./database.ts";
import { eventValues } from "./event-values.ts";
import { PAYMENT_JSON, toPaymentState } from "./payment-rows.ts";
import type { PaymentRow } from "./payment-rows.ts";

/** Statements of the accepting transaction, each one round trip. Order of locks: key, then the source account. */

export interface KeyClaim {
  readonly merchant: string;
  readonly key: string;
  readonly operation: "pay";
  readonly fingerprint: string;
  readonly requestId: string;
  /** The answer if nothing speaks against it; `refuseKey` changes it in the same transaction. */
  readonly paymentId: string;
  /** ISO 8601; a key that nobody waits for any more isn't claimed. */
  readonly notAfter: string;
}

export interface ClaimedKey {
  readonly isNew: boolean;
  readonly now: Date;
  readonly source: AccountState | null;
  readonly destination: AccountState | null;
}

interface AccountRow {
  accountId: string;
  kind: string;
  currency: string;
  status: string;
  posted: string;
  held: string;
  overdraft: string;
}

/**
 * Claims the key and, if it is new, locks the source and reads the destination. A competitor's uncommitted claim is
 * waited for, so that `isNew: false` always finds the winner's row in the next statement.
 */
export async function claimKey(
  tx: Tx,
  claim: KeyClaim,
  accounts: { source: string; destination: string },
): Promise<ClaimedKey> {
  const [row] = await tx.run<{
    is_new: boolean;
    now: Date;
    source: AccountRow | null;
    destination: AccountRow | null;
  }>(
    {
      name: "claim_key",
      text: `
      WITH claimed AS MATERIALIZED (
        INSERT INTO remit.idempotency_keys (merchant, key, operation, fingerprint, request_id, outcome)
        SELECT $1, $2, $3, $4, $5, jsonb_build_object('decision', 'accepted', 'paymentId', $6::text)
         WHERE clock_timestamp() < $7::timestamptz
            ON CONFLICT (merchant, key) DO NOTHING
        RETURNING key
      ), source AS MATERIALIZED (
        SELECT ${ACCOUNT_JSON} AS account
          FROM claimed
          JOIN remit.accounts a ON a.id = $8
           FOR NO KEY UPDATE OF a
      )
      SELECT EXISTS (SELECT FROM claimed) AS is_new,
             clock_timestamp() AS now,
             (SELECT account FROM source) AS source,
             (SELECT ${ACCOUNT_JSON} FROM remit.accounts a WHERE a.id = $9) AS destination`,
    },
    [
      claim.merchant,
      claim.key,
      claim.operation,
      claim.fingerprint,
      claim.requestId,
      claim.paymentId,
      claim.notAfter,
      accounts.source,
      accounts.destination,
    ],
  );
  if (row === undefined) throw new Error("claim_key returned no row");
  return {
    isNew: row.is_new,
    now: row.now,
    source: row.source === null ? null : toAccountState(row.source),
    destination: row.destination === null ? null : toAccountState(row.destination),
  };
}

/** Digits as text: JSON numbers would lose those beyond 2^53. */
export const ACCOUNT_JSON = `jsonb_build_object(
          'accountId', a.id, 'kind', a.kind, 'currency', a.currency, 'status', a.status,
          'posted', a.posted::text, 'held', a.held::text, 'overdraft', a.overdraft::text)`;

export function toAccountState(row: AccountRow): AccountState {
  return {
    ...row,
    posted: BigInt(row.posted),
    held: BigInt(row.held),
    overdraft: BigInt(row.overdraft),
  };
}

/** Creates `world:<CUR>` on first use; a second call, or another session's, changes nothing. */
export async function createWorldAccount(
  tx: Tx,
  { accountId, currency }: { accountId: string; currency: string },
): Promise<void> {
  await tx.run(
    {
      name: "create_world_account",
      text: `INSERT INTO remit.accounts (id, kind, currency)
             VALUES ($1, 'world', $2)
                 ON CONFLICT (id) DO NOTHING`,
    },
    [accountId, currency],
  );
}

/** Locks one account after the claim; for the world account that the claim did not find. */
export async function lockAccount(tx: Tx, accountId: string): Promise<AccountState | null> {
  const [row] = await tx.run<{ account: AccountRow }>(
    {
      name: "lock_account",
      text: `SELECT ${ACCOUNT_JSON} AS account
               FROM remit.accounts a
              WHERE a.id = $1
                FOR NO KEY UPDATE`,
    },
    [accountId],
  );
  return row === undefined ? null : toAccountState(row.account);
}

/** An account as it is, without a lock: whoever credits it judges it again when it is booked. */
export async function readAccount(tx: Tx, accountId: string): Promise<AccountState | null> {
  const [row] = await tx.run<{ account: AccountRow }>(
    {
      name: "read_account",
      text: `SELECT ${ACCOUNT_JSON} AS account
               FROM remit.accounts a
              WHERE a.id = $1`,
    },
    [accountId],
  );
  return row === undefined ? null : toAccountState(row.account);
}

/** Turns this transaction's prepared acceptance into a refusal, with what tells a contradiction later. */
export async function refuseKey(
  tx: Tx,
  { merchant, key }: { merchant: string; key: string },
  refusal: { code: ErrorCode; message: string; parameters: RecordedParameters; paymentId?: string },
): Promise<void> {
  await tx.run(
    {
      name: "refuse_key",
      text: `UPDATE remit.idempotency_keys
                SET outcome = $3::jsonb || '{"decision": "refused"}'
              WHERE merchant = $1
                AND key = $2`,
    },
    [merchant, key, JSON.stringify(refusal)],
  );
}

/** A payment as it is recorded; `expiresAt` with manual capture, `version` counts all events of the transaction. */
export interface NewPayment extends PaymentParameters {
  readonly paymentId: string;
  readonly holdId: string;
  readonly status: PaymentStatus;
  readonly expiresAt: Date | null;
  readonly version: number;
}

/** Writes payment, hold and first event in one statement; the deferred triggers check at COMMIT that they agree. Answers when. */
export async function insertPayment(
  tx: Tx,
  payment: NewPayment,
  event: OutboxEvent,
): Promise<Date> {
  const [row] = await tx.run<{ created_at: Date }>(
    {
      name: "insert_payment",
      text: `
      WITH payment AS (
        INSERT INTO remit.payments (id, merchant, idempotency_key, source, destination, amount, currency, capture, status, description, version, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        RETURNING created_at
      ), event AS (
        INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
        VALUES ($14, $15, $16, $17, $18, $19, $20)
      ), hold AS (
        INSERT INTO remit.holds (id, account_id, payment_id, amount)
        VALUES ($13, $4, $1, $6)
      )
      SELECT created_at FROM payment`,
    },
    [
      payment.paymentId,
      payment.merchant,
      payment.idempotencyKey,
      payment.source,
      payment.destination,
      payment.amountMinor,
      payment.currency,
      payment.capture,
      payment.status,
      payment.description,
      payment.version,
      payment.expiresAt,
      payment.holdId,
      ...eventValues(event),
    ],
  );
  if (row === undefined) throw new Error("insert_payment returned no row");
  return row.created_at;
}

/** One more event of a transaction that wrote the first one with its payment. */
export async function insertEvent(tx: Tx, event: OutboxEvent): Promise<void> {
  await tx.run(
    {
      name: "insert_event",
      text: `INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, headers)
             VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    },
    eventValues(event),
  );
}

/** The decision that stands about a key, with the payment as it is now. */
export interface StandingDecision {
  readonly operation: string;
  readonly fingerprint: string;
  readonly requestId: string;
  readonly refusal: { code: ErrorCode; message: string } | null;
  /** What a key of another operation, or of a refusal, was used with; an accepted payment says it itself. */
  readonly parameters: RecordedParameters | null;
  readonly payment: (PaymentState & { description: string | null; createdAt: Date }) | null;
}

/** Null where the key was never claimed. A statement of its own: its snapshot must see the winner's commit. */
export async function readDecision(
  tx: Tx,
  { merchant, key }: { merchant: string; key: string },
): Promise<StandingDecision | null> {
  const [row] = await tx.run<{
    operation: string;
    fingerprint: string;
    request_id: string;
    outcome: {
      decision: string;
      code: ErrorCode;
      message: string;
      parameters?: RecordedParameters;
    };
    payment: PaymentRow | null;
    description: string | null;
    created_at: Date;
  }>(
    {
      name: "read_decision",
      text: `SELECT k.operation, k.fingerprint, k.request_id, k.outcome, p.description, p.created_at,
                    CASE WHEN p.id IS NOT NULL THEN ${PAYMENT_JSON} END AS payment
               FROM remit.idempotency_keys k
               LEFT JOIN remit.payments p ON p.merchant = k.merchant AND p.idempotency_key = k.key
              WHERE k.merchant = $1
                AND k.key = $2`,
    },
    [merchant, key],
  );
  if (row === undefined) return null;
  return {
    operation: row.operation,
    fingerprint: row.fingerprint,
    requestId: row.request_id,
    refusal: row.outcome.decision === "refused" ? row.outcome : null,
    parameters: row.outcome.parameters ?? null,
    payment:
      row.payment === null
        ? null
        : {
            ...toPaymentState(row.payment),
            description: row.description,
            createdAt: row.created_at,
          },
  };
}
