import { DomainError } from "./errors.ts";

/** The one place where workflow ids are made: the id is what makes a second start harmless. */
export const workflowIds = {
  /** A merchant has no ":", so merchant and key can't be confused. */
  payment: ({ merchant, key }: { merchant: string; key: string }): string =>
    `payment:${merchant}:${key}`,
  refund: ({ merchant, key }: { merchant: string; key: string }): string =>
    `refund:${merchant}:${key}`,
  ledgerEntry: (messageId: string): string => `ledger:${messageId}`,
  outboxRelay: ({ fromShard, toShard }: RelayRange): string =>
    `outbox-relay:${fromShard}-${toShard}`,
  supervisor: "supervisor",
  retention: "retention",
  reconciliation: (scope: "recent" | "full"): string => `reconciliation-${scope}`,
} as const;

/** The merchant and key of a payment's or refund's workflow; null for another one's id. */
export function keyOfWorkflowId(workflowId: string): { merchant: string; key: string } | null {
  const match = /^(?:payment|refund):([a-z0-9-]+):(.+)$/.exec(workflowId);
  const [, merchant, key] = match ?? [];
  return merchant === undefined || key === undefined ? null : { merchant, key };
}

/** A part of the outbox's 64 shards, both ends included. */
export interface RelayRange {
  readonly fromShard: number;
  readonly toShard: number;
}

/** The range of a relay's workflow; null for another one's id. */
export function rangeOfWorkflowId(workflowId: string): RelayRange | null {
  const match = /^outbox-relay:([0-9]+)-([0-9]+)$/.exec(workflowId);
  return match === null ? null : { fromShard: Number(match[1]), toShard: Number(match[2]) };
}

/** Temporal Schedules append a time to the ids of what they start, so their ids are prefixes. */
export const scheduleIds = {
  supervisor: "remit-supervisor",
  retention: "remit-retention",
  reconciliationRecent: "remit-reconciliation-recent",
  reconciliationFull: "remit-reconciliation-full",
} as const;

export const ACCOUNT_ID_PATTERN = /^[A-Za-z0-9._:-]{1,64}$/;
export const MERCHANT_PATTERN = /^[a-z0-9-]{1,64}$/;
/** Visible ASCII: no space, no control character, so that a key survives every log, header and shell. */
export const IDEMPOTENCY_KEY_PATTERN = /^[\x21-\x7e]{1,255}$/;
export const DEFAULT_MERCHANT = "default";

/** As we make and print them; PostgreSQL reads the same pattern. */
export const UUID_PATTERN = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** `world:<CUR>`, where money enters and leaves; the only kind of account that may go below its overdraft. */
export function worldAccountCurrency(accountId: string): string | null {
  return /^world:([A-Z]{3})$/.exec(accountId)?.[1] ?? null;
}

/** @throws DomainError `account_invalid` */
export function assertAccountId(value: unknown, path: string): void {
  if (isLike(ACCOUNT_ID_PATTERN, value)) return;
  throw new DomainError(
    "account_invalid",
    `${path}: expected 1 to 64 of A-Z a-z 0-9 . _ : -, found ${JSON.stringify(value)}`,
  );
}

/** @throws DomainError `merchant_invalid` */
export function assertMerchant(value: unknown, path: string): void {
  if (isLike(MERCHANT_PATTERN, value)) return;
  throw new DomainError(
    "merchant_invalid",
    `${path}: expected 1 to 64 of a-z 0-9 -, found ${JSON.stringify(value)}`,
  );
}

/** @throws DomainError `key_invalid` */
export function assertIdempotencyKey(value: unknown, path: string): void {
  if (isLike(IDEMPOTENCY_KEY_PATTERN, value)) return;
  throw new DomainError(
    "key_invalid",
    `${path}: expected 1 to 255 visible ASCII characters without spaces, found ${JSON.stringify(value)}`,
  );
}

/** @throws DomainError `usage` */
export function assertUuid(value: unknown, path: string): void {
  if (isLike(UUID_PATTERN, value)) return;
  throw new DomainError(
    "usage",
    `${path}: expected a UUID in lower case, found ${JSON.stringify(value)}`,
  );
}

/** A pattern by itself takes `["x"]` for "x". */
function isLike(pattern: RegExp, value: unknown): boolean {
  return typeof value === "string" && pattern.test(value);
}
