import type { RecordResult } from "../workflows/messages.ts";

/**
 * A new key is kept for ever as what its fingerprint stands for. Under that of other parameters it would answer somebody
 * else's request with this one, so it is rolled back. A repeat isn't looked at: what a run takes up again is read from rows.
 */
export class ForeignFingerprintError extends Error {}

/** Answers `malformed` where the work met a new key under a fingerprint that isn't its parameters'. */
export async function unlessForeign<Receipt>(
  { requestId }: { requestId: string },
  work: () => Promise<RecordResult<Receipt>>,
): Promise<RecordResult<Receipt>> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ForeignFingerprintError)) throw error;
    const message = "fingerprint: expected the one of these parameters";
    return { outcome: "malformed", code: "usage", message, requestId };
  }
}
