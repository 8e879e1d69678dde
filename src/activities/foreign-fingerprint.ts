import { violatedConstraint } from "../database/database-error.ts";
import type { RecordResult } from "../workflows/messages.ts";

/**
 * A new key is kept for ever as what its fingerprint stands for. Under that of other parameters it would answer somebody
 * else's request with this one, so it is rolled back. A repeat isn't looked at: what a run takes up again is read from rows.
 */
export class ForeignFingerprintError extends Error {}

/** Answers `malformed` where the work met a new key under a fingerprint that isn't its parameters', or under an id that is taken. */
export async function unlessForeign<Receipt>(
  { requestId }: { requestId: string },
  work: () => Promise<RecordResult<Receipt>>,
): Promise<RecordResult<Receipt>> {
  try {
    return await work();
  } catch (error) {
    const message = whyForeign(error);
    if (message === null) throw error;
    return { outcome: "malformed", code: "usage", message, requestId };
  }
}

function whyForeign(error: unknown): string | null {
  if (error instanceof ForeignFingerprintError) {
    return "fingerprint: expected the one of these parameters";
  }
  const taken = TAKEN.find(({ constraint }) => constraint === violatedConstraint(error));
  return taken === undefined
    ? null
    : `${taken.field}: expected a new UUID, found one that is taken`;
}

const TAKEN = [
  { constraint: "payments_pkey", field: "paymentId" },
  { constraint: "refunds_pkey", field: "refundId" },
] as const;
