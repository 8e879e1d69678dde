import { v7 as uuidv7 } from "uuid";
import {
  claimKey,
  createWorldAccount,
  insertEvent,
  insertPayment,
  lockAccount,
  readDecision,
  refuseKey,
} from "../database/record-queries.ts";
import type { ClaimedKey, StandingDecision } from "../database/record-queries.ts";
import { inTransaction } from "../database/database.ts";
import type { Database, Tx } from "../database/database.ts";
import { CURRENCY_EXPONENTS } from "../domain/currencies.ts";
import { refuseAcceptance } from "../domain/decisions.ts";
import type { AccountState } from "../domain/decisions.ts";
import { DomainError } from "../domain/errors.ts";
import { newEvent } from "../domain/events.ts";
import { fingerprintOf } from "../domain/fingerprint.ts";
import { worldAccountCurrency } from "../domain/ids.ts";
import type { PaymentParameters, RecordedParameters } from "../domain/payment.ts";
import type { PaymentInput, PaymentReceipt, RecordResult } from "../workflows/messages.ts";
import { eventData } from "./event-data.ts";
import { ForeignFingerprintError, unlessForeign } from "./foreign-fingerprint.ts";
import { malformedPayment } from "./malformed.ts";

export type RecordPaymentResult = RecordResult<PaymentReceipt>;

/**
 * One commit: idempotency key + payment + hold on the source + outbox row, or key + refusal.
 *
 * Run twice, it answers with what the first run committed: the same request id means that this very request was
 * recorded and its answer got lost, so it is `recorded` again and not `repeated`.
 */
export async function recordPayment(
  database: Database,
  input: PaymentInput,
): Promise<RecordPaymentResult> {
  const malformed = malformedPayment(input);
  if (malformed !== null) return malformed;
  const expected = fingerprintOf(parametersOf(input));
  return await unlessForeign(
    input,
    async () =>
      await inTransaction(database, async (tx) => {
        const claimed = await claimKey(
          tx,
          {
            merchant: input.merchant,
            key: input.idempotencyKey,
            operation: "pay",
            fingerprint: input.fingerprint,
            requestId: input.requestId,
            paymentId: input.paymentId,
            notAfter: input.notAfter,
          },
          input,
        );
        if (!claimed.isNew) return await answerAgain(tx, input);
        if (input.fingerprint !== expected) throw new ForeignFingerprintError();
        return await decide(tx, input, claimed);
      }),
  );
}

async function decide(
  tx: Tx,
  input: PaymentInput,
  claimed: ClaimedKey,
): Promise<RecordPaymentResult> {
  const parameters = parametersOf(input);
  const source = claimed.source ?? (await openWorld(tx, input.source));
  const destination = claimed.destination ?? (await openWorld(tx, input.destination));
  const refusal = refuseAcceptance(parameters, { source, destination });
  if (refusal !== null) {
    await refuseKey(
      tx,
      { merchant: input.merchant, key: input.idempotencyKey },
      { ...refusal, parameters: { ...parameters } },
    );
    return { outcome: "refused", ...refusal, requestId: input.requestId };
  }

  return await record(tx, input, claimed.now);
}

async function record(tx: Tx, input: PaymentInput, now: Date): Promise<RecordPaymentResult> {
  const isManual = input.capture === "manual";
  const { expiresInSeconds = 0 } = input;
  const payment = {
    ...parametersOf(input),
    paymentId: input.paymentId,
    holdId: uuidv7(),
    status: isManual ? ("authorized" as const) : ("pending" as const),
    expiresAt: isManual ? new Date(now.getTime() + expiresInSeconds * 1_000) : null,
    version: isManual ? 2 : 1,
  };
  const data = eventData({ ...payment, amount: BigInt(input.amountMinor) });
  const messageId = uuidv7();
  const { traceparent } = input;
  const createdAt = await insertPayment(
    tx,
    payment,
    newEvent({
      messageId,
      type: "payment.created",
      aggregateVersion: 1,
      time: now,
      traceparent,
      data,
    }),
  );
  const expiresAt = payment.expiresAt?.toISOString();
  if (expiresAt !== undefined) {
    const authorized = { ...data, expiresAt };
    await insertEvent(
      tx,
      newEvent({
        messageId: uuidv7(),
        type: "payment.authorized",
        aggregateVersion: 2,
        time: now,
        traceparent,
        data: authorized,
      }),
    );
  }
  return {
    outcome: "recorded",
    messageId,
    receipt: {
      paymentId: input.paymentId,
      requestId: input.requestId,
      status: payment.status,
      createdAt: createdAt.toISOString(),
      ...(expiresAt === undefined ? {} : { expiresAt }),
    },
  };
}

async function answerAgain(tx: Tx, input: PaymentInput): Promise<RecordPaymentResult> {
  const decision = await readDecision(tx, { merchant: input.merchant, key: input.idempotencyKey });
  if (decision === null) return { outcome: "expired" };
  if (decision.fingerprint !== input.fingerprint) return contradiction(input, decision);
  if (decision.refusal !== null) {
    const { code, message } = decision.refusal;
    return { outcome: "refused", code, message, requestId: decision.requestId };
  }
  if (decision.payment === null) {
    throw new DomainError(
      "internal",
      `key ${input.idempotencyKey} of ${input.merchant} is accepted and has no payment`,
    );
  }
  return {
    outcome: decision.requestId === input.requestId ? "recorded" : "repeated",
    receipt: {
      paymentId: decision.payment.paymentId,
      requestId: decision.requestId,
      status: decision.payment.status,
      createdAt: decision.payment.createdAt.toISOString(),
      ...(decision.payment.expiresAt === null
        ? {}
        : { expiresAt: decision.payment.expiresAt.toISOString() }),
    },
  };
}

function contradiction(
  { merchant, idempotencyKey }: PaymentInput,
  { operation, parameters, payment, requestId }: StandingDecision,
): RecordPaymentResult {
  const recorded = payment === null ? parameters : parametersOfRecorded(payment);
  return {
    outcome: "contradictory",
    code: "idempotency_key_reused",
    message: `key ${idempotencyKey} of merchant ${merchant} was used with other parameters`,
    requestId,
    ...(recorded === null ? {} : { recorded: { operation, ...recorded } }),
  };
}

function parametersOfRecorded(
  payment: NonNullable<StandingDecision["payment"]>,
): RecordedParameters {
  const { expiresAt, createdAt } = payment;
  const parameters = parametersOf({ ...payment, amountMinor: payment.amount.toString() });
  if (expiresAt === null) return { ...parameters };
  // Both were taken from the same clock, a moment apart.
  const expiresInSeconds = Math.round((expiresAt.getTime() - createdAt.getTime()) / 1_000);
  return { ...parameters, expiresInSeconds };
}

async function openWorld(tx: Tx, accountId: string): Promise<AccountState | null> {
  const currency = worldAccountCurrency(accountId);
  if (currency === null || !CURRENCY_EXPONENTS.has(currency)) return null;
  await createWorldAccount(tx, { accountId, currency });
  return await lockAccount(tx, accountId);
}

function parametersOf(from: PaymentParameters): PaymentParameters {
  return {
    merchant: from.merchant,
    idempotencyKey: from.idempotencyKey,
    source: from.source,
    destination: from.destination,
    amountMinor: from.amountMinor,
    currency: from.currency,
    capture: from.capture,
    description: from.description,
    ...(from.expiresInSeconds === undefined ? {} : { expiresInSeconds: from.expiresInSeconds }),
  };
}
