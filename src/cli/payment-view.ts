import type { PaymentDocument } from "../client/payment-document.ts";
import { workflowUrlOf } from "../client/payment-client.ts";
import { forgottenPayment } from "../client/record-again.ts";
import type { Settings } from "../config/settings.ts";
import type { Database } from "../database/database.ts";
import { getPayment } from "../database/payment-queries.ts";
import type { PaymentView } from "../database/payment-queries.ts";
import { DomainError } from "../domain/errors.ts";
import { workflowIds } from "../domain/ids.ts";
import { formatMajor } from "../domain/money.ts";
import type { PaymentStatus } from "../domain/payment.ts";

/** A payment with what PostgreSQL alone knows. */
export interface CurrentPayment extends PaymentDocument {
  readonly createdAt: Date;
  readonly settledAt: Date | null;
  readonly expiresAt: Date | null;
}

/** A payment as PostgreSQL has it now. */
export function documentOfView(
  view: PaymentView,
  { replayed, urlOf }: { replayed: boolean; urlOf: (workflowId: string) => string | null },
): CurrentPayment {
  const { merchant, idempotencyKey, currency } = view;
  const workflowId = workflowIds.payment({ merchant, key: idempotencyKey });
  return {
    paymentId: view.paymentId,
    merchant,
    idempotencyKey,
    status: view.status as PaymentStatus,
    amountMinor: view.amountMinor.toString(),
    amount: formatMajor(view.amountMinor, currency),
    currency,
    source: view.source,
    destination: view.destination,
    capture: view.capture,
    description: view.description,
    capturedMinor: view.capturedMinor.toString(),
    captured: formatMajor(view.capturedMinor, currency),
    refundedMinor: view.refundedMinor.toString(),
    refunded: formatMajor(view.refundedMinor, currency),
    replayed,
    failureCode: view.failureCode,
    workflowId,
    workflowUrl: urlOf(workflowId),
    createdAt: view.createdAt,
    settledAt: view.settledAt,
    expiresAt: view.expiresAt,
  };
}

/** The same on these settings' Web UI, for who has only looked. */
export function currentDocument(
  view: PaymentView,
  { temporal: { namespace, uiUrl } }: Settings,
): CurrentPayment {
  return documentOfView(view, {
    replayed: false,
    urlOf: (workflowId) => workflowUrlOf(workflowId, { uiUrl, namespace }),
  });
}

/** @throws DomainError `payment_not_found` */
export async function requirePayment(database: Database, id: string): Promise<PaymentView> {
  // What isn't a UUID can't be the id of a payment; PostgreSQL would call it a syntax error.
  const view = UUID_PATTERN.test(id) ? await getPayment(database, id) : null;
  if (view !== null) return view;
  throw new DomainError("payment_not_found", `there is no payment ${JSON.stringify(id)}`);
}

const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether PostgreSQL has this payment; true where it is away for a moment, since then what Temporal said is shown. */
export async function hasPayment(database: Database, paymentId: string): Promise<boolean> {
  return (await paymentIfThere(database, paymentId)) !== null;
}

/**
 * Brings a document up to now; where PostgreSQL is away for a moment, what Temporal said is shown instead.
 * @throws DomainError `outcome_unknown` where PostgreSQL doesn't have what Temporal said
 */
export async function refreshDocument(
  database: Database,
  document: PaymentDocument,
): Promise<PaymentDocument> {
  const { paymentId, replayed, workflowUrl } = document;
  const view = await paymentIfThere(database, paymentId);
  if (view === undefined) return document;
  if (view !== null) return documentOfView(view, { replayed, urlOf: () => workflowUrl });
  throw forgottenPayment(paymentId);
}

/** Null where PostgreSQL says that there is none, undefined where it is away. */
async function paymentIfThere(
  database: Database,
  paymentId: string,
): Promise<PaymentView | null | undefined> {
  try {
    return await getPayment(database, paymentId);
  } catch (error) {
    if (error instanceof DomainError && error.code === "database_unreachable") return undefined;
    throw error;
  }
}

export function paymentText(document: PaymentDocument): string {
  const { amount, currency, source, destination, idempotencyKey, merchant } = document;
  const lines = [
    `payment ${document.paymentId}: ${document.status}${document.replayed ? " (replayed)" : ""}`,
    `  ${amount} ${currency} ${source} → ${destination}, key ${idempotencyKey} of ${merchant}`,
  ];
  if (document.capture === "manual") {
    lines.push(`  captured ${document.captured} of ${amount} ${currency}`);
  }
  if (document.failureCode !== null) lines.push(`  failed with ${document.failureCode}`);
  if (document.refundedMinor !== "0") lines.push(`  refunded ${document.refunded} ${currency}`);
  if (document.workflowUrl !== null) lines.push(`  ${document.workflowUrl}`);
  return lines.join("\n");
}
