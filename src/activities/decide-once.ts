import { inTransaction } from "../database/database.ts";
import type { Database, Tx } from "../database/database.ts";
import { claimOperation, readOperation } from "../database/operation-queries.ts";
import type { OperationClaim, StandingOperation } from "../database/operation-queries.ts";
import { refuseKey } from "../database/record-queries.ts";
import type { PaymentState, Refusal } from "../domain/decisions.ts";
import { DomainError } from "../domain/errors.ts";
import { operationFingerprint } from "../domain/fingerprint.ts";
import type { RecordResult } from "../workflows/messages.ts";
import { ForeignFingerprintError, unlessForeign } from "./foreign-fingerprint.ts";

/** What an operation does to a payment that it has locked, and how it reads its own first answer back. */
export interface KeyedOperation<Receipt> {
  readonly decide: (tx: Tx, payment: PaymentState) => Promise<Receipt | Refusal>;
  readonly receiptOf: (standing: StandingOperation) => Receipt | null;
  /** Of the message that `decide` writes for the ledger. */
  readonly messageId?: string;
}

/**
 * Decides about a request once: its key, the decision, and all that it writes are one commit. A repeat answers with the
 * first decision; the same request id means that the first answer got lost, so it is `recorded` again.
 */
export async function decideOnce<Receipt extends object>(
  database: Database,
  claim: OperationClaim,
  { decide, receiptOf, messageId }: KeyedOperation<Receipt>,
): Promise<RecordResult<Receipt>> {
  const { operation, parameters, idempotencyKey, fingerprint, requestId } = claim;
  const expected = operationFingerprint(operation, { ...parameters, idempotencyKey });
  return await unlessForeign(
    claim,
    async () =>
      await inTransaction(database, async (tx) => {
        const { isNew, payment } = await claimOperation(tx, claim);
        if (!isNew) return await answerAgain(tx, claim, receiptOf);
        if (fingerprint !== expected) throw new ForeignFingerprintError();
        const decision = payment === null ? notFound(claim) : await decide(tx, payment);
        if (!("code" in decision)) {
          const ledgerWaits = messageId === undefined ? {} : { messageId };
          return { outcome: "recorded", receipt: decision, ...ledgerWaits };
        }
        const { merchant, paymentId } = claim;
        await refuseKey(
          tx,
          { merchant, key: idempotencyKey },
          { ...decision, parameters, paymentId },
        );
        return { outcome: "refused", ...decision, requestId };
      }),
  );
}

async function answerAgain<Receipt extends object>(
  tx: Tx,
  claim: OperationClaim,
  receiptOf: (standing: StandingOperation) => Receipt | null,
): Promise<RecordResult<Receipt>> {
  const { merchant, idempotencyKey: key } = claim;
  const standing = await readOperation(tx, { merchant, key });
  if (standing === null) return { outcome: "expired" };
  const { requestId, operation, parameters, refusal } = standing;
  if (standing.fingerprint !== claim.fingerprint) {
    return {
      outcome: "contradictory",
      code: "idempotency_key_reused",
      message: `key ${key} of merchant ${merchant} was used for another ${operation}`,
      requestId,
      recorded: { operation, ...parameters },
    };
  }
  if (refusal !== null) return { outcome: "refused", ...refusal, requestId };
  const receipt = receiptOf(standing);
  if (receipt === null) {
    throw new DomainError("internal", `key ${key} of ${merchant} is accepted and made nothing`);
  }
  return { outcome: requestId === claim.requestId ? "recorded" : "repeated", receipt };
}

function notFound({ paymentId, merchant }: OperationClaim): Refusal {
  return {
    code: "payment_not_found",
    message: `merchant ${merchant} has no payment ${paymentId}`,
  };
}
