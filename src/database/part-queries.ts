import type { PartStatus } from "../domain/payment.ts";
import type { Tx } from "./database.ts";

/** A capture or refund as it is now; the amount in minor units. */
export interface PartView {
  readonly amountMinor: bigint;
  readonly status: PartStatus;
  readonly failureCode: string | null;
}

export async function getCapture(tx: Tx, captureId: string): Promise<PartView | null> {
  return await onePart(tx, { name: "get_capture", table: "captures", id: captureId });
}

export async function getRefund(tx: Tx, refundId: string): Promise<PartView | null> {
  return await onePart(tx, { name: "get_refund", table: "refunds", id: refundId });
}

async function onePart(
  tx: Tx,
  { name, table, id }: { name: string; table: "captures" | "refunds"; id: string },
): Promise<PartView | null> {
  const [row] = await tx.run<{ amount: string; status: PartStatus; failureCode: string | null }>(
    {
      name,
      text: `SELECT amount, status, failure_code AS "failureCode"
               FROM remit.${table}
              WHERE id = $1`,
    },
    [id],
  );
  if (row === undefined) return null;
  return { amountMinor: BigInt(row.amount), status: row.status, failureCode: row.failureCode };
}
