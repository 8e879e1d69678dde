import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { createPaymentClient } from "../src/client/payment-client.ts";
import type { PaymentAnswer, PaymentClient } from "../src/client/payment-client.ts";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { DomainError } from "../src/domain/errors.ts";
import type { Asked, Oracle } from "./oracle.ts";
import type { Random } from "./random.ts";
import type { ChaosStack } from "./stack.ts";

export const CUSTOMERS = ["ann", "bob", "cleo", "dan", "eve", "fay"] as const;
export const MERCHANTS = ["shop", "hotel", "cab"] as const;

export interface LoadOptions {
  readonly stack: ChaosStack;
  readonly oracle: Oracle;
  readonly random: Random;
  readonly scenario: string;
  /** Clients that ask at the same time. */
  readonly lanes: number;
}

export interface Load {
  /** Asks for nothing new, and resolves when all that was asked has its answer; false where that takes too long. */
  readonly stop: (withinMs: number) => Promise<boolean>;
}

/** Clients that pay all the while: automatic payments, holds with captures or voids, refunds, and keys used twice. */
export async function startLoad(options: LoadOptions): Promise<Load> {
  const { stack, lanes } = options;
  const { client, close } = await connectTemporal({
    address: stack.temporalAddress,
    namespace: stack.temporalNamespace,
    connectionOptions: {},
  });
  const payments = createPaymentClient({ client });
  const stopping = new AbortController();
  const giveUp = new AbortController();
  const lane = new Lane({ ...options, payments, giveUp: giveUp.signal });
  const running = Array.from({ length: lanes }, async () => {
    while (!stopping.signal.aborted) {
      await lane.askOnce();
      await delay(PAUSE_MS);
    }
  });
  return {
    stop: async (withinMs) => {
      stopping.abort();
      const late = delay(withinMs, false, { ref: false });
      const isAnswered = await Promise.race([Promise.all(running).then(() => true), late]);
      giveUp.abort();
      await Promise.all(running);
      await close();
      return isAnswered;
    },
  };
}

/** Between two payments of one client: the machine's two cores are for Remit. */
const PAUSE_MS = 300;
const AGAIN_MS = 200;

class Lane {
  readonly #options: LoadOptions & { payments: PaymentClient; giveUp: AbortSignal };

  constructor(options: LoadOptions & { payments: PaymentClient; giveUp: AbortSignal }) {
    this.#options = options;
  }

  /** One payment with what belongs to it; the mix is seven automatic, one captured, one voided, one refunded. */
  async askOnce(): Promise<void> {
    const { random } = this.#options;
    const kind = random.integer(1, 10);
    const asked = this.#write({
      kind: "pay",
      from: random.oneOf(CUSTOMERS),
      to: random.oneOf(MERCHANTS),
      amountMinor: BigInt(random.integer(1, 9_999)),
      isManual: kind === 8 || kind === 9,
    });
    const answer = await this.#pay(asked);
    if (answer === null) return;
    const isRepeated = random.integer(1, 5) === 1;
    if (isRepeated) await this.#pay(asked);
    if (kind === 8) await this.#capture(asked, answer);
    if (kind === 9) await this.#void(asked, answer);
    if (kind === 10) await this.#refund(asked, answer);
  }

  #write(
    part: Pick<Asked, "kind" | "from" | "to" | "amountMinor" | "isManual"> & {
      paymentKey?: string;
    },
  ): Asked {
    const { oracle, scenario } = this.#options;
    const key = `${part.kind}-${randomUUID()}`;
    return oracle.write({
      ...part,
      key,
      scenario,
      paymentKey: part.paymentKey ?? key,
      askedAtMs: Date.now(),
    });
  }

  async #pay(asked: Asked): Promise<PaymentAnswer | null> {
    const { payments } = this.#options;
    const { key, from, to, amountMinor, isManual } = asked;
    const answer = await this.#untilAnswered(
      key,
      async () =>
        await payments.pay({
          key,
          from,
          to,
          amountMinor: amountMinor.toString(),
          currency: "EUR",
          ...(isManual ? { capture: "manual" } : {}),
        }),
    );
    if (answer !== null) this.#options.oracle.answered(key, answer.paymentId);
    return answer;
  }

  async #capture(payment: Asked, answer: PaymentAnswer): Promise<void> {
    const { payments, random } = this.#options;
    const amountMinor = BigInt(random.integer(1, Number(payment.amountMinor)));
    const asked = this.#write({ ...payment, kind: "capture", amountMinor });
    const request = { key: asked.key, amountMinor: amountMinor.toString(), final: true };
    const done = await this.#untilAnswered(
      asked.key,
      async () => await payments.capture(handleOf(answer), request),
    );
    if (done !== null) this.#options.oracle.answered(asked.key, done.captureId);
  }

  async #void(payment: Asked, answer: PaymentAnswer): Promise<void> {
    const { payments } = this.#options;
    const asked = this.#write({ ...payment, kind: "void", amountMinor: 0n });
    const request = { key: asked.key };
    const done = await this.#untilAnswered(
      asked.key,
      async () => await payments.void(handleOf(answer), request),
    );
    if (done !== null) this.#options.oracle.answered(asked.key, done.paymentId);
  }

  async #refund(payment: Asked, answer: PaymentAnswer): Promise<void> {
    const { payments, random } = this.#options;
    const end = await this.#untilAnswered(
      payment.key,
      async () => await payments.waitForEnd(answer, { timeoutMs: END_MS_MAX }),
    );
    if (end === null) return;
    const amountMinor = BigInt(random.integer(1, Number(payment.amountMinor)));
    const asked = this.#write({ ...payment, kind: "refund", amountMinor });
    const request = { key: asked.key, amountMinor: amountMinor.toString() };
    const done = await this.#untilAnswered(
      asked.key,
      async () => await payments.refund(handleOf(answer), request),
    );
    if (done !== null) this.#options.oracle.answered(asked.key, done.refundId);
  }

  /** The same request with the same key until there is an answer; a refusal is one, and none of ours may be refused. */
  async #untilAnswered<Answer>(key: string, ask: () => Promise<Answer>): Promise<Answer | null> {
    const { giveUp, oracle } = this.#options;
    while (!giveUp.aborted) {
      try {
        return await ask();
      } catch (error) {
        const code = error instanceof DomainError ? error.code : null;
        if (code === null || !REPEATABLE.has(code)) {
          oracle.contradictions.push(`key ${key}: ${code ?? ""} ${String(error)}`);
          return null;
        }
      }
      await delay(AGAIN_MS);
    }
    return null;
  }
}

const END_MS_MAX = 20_000;
const REPEATABLE = new Set(["outcome_unknown", "temporal_unreachable", "wait_timeout"]);

function handleOf({
  paymentId,
  parameters,
}: PaymentAnswer): Parameters<PaymentClient["capture"]>[0] {
  const { merchant, idempotencyKey, currency, capture } = parameters;
  return { paymentId, merchant, idempotencyKey, currency, capture };
}

/** Opens the accounts' balances by payments from the world, which the oracle counts like all others. */
export async function fundCustomers(options: LoadOptions): Promise<void> {
  const { stack, oracle, scenario } = options;
  const { client, close } = await connectTemporal({
    address: stack.temporalAddress,
    namespace: stack.temporalNamespace,
    connectionOptions: {},
  });
  const payments = createPaymentClient({ client });
  for (const customer of CUSTOMERS) {
    const key = `fund-${customer}`;
    const asked = oracle.write({
      key,
      scenario,
      kind: "pay",
      paymentKey: key,
      from: "world:EUR",
      to: customer,
      amountMinor: FUNDS_MINOR,
      isManual: false,
      askedAtMs: Date.now(),
    });
    const answer = await payments.pay({
      key,
      from: asked.from,
      to: customer,
      amountMinor: FUNDS_MINOR.toString(),
      currency: "EUR",
    });
    oracle.answered(key, answer.paymentId);
    await payments.waitForEnd(answer, { timeoutMs: 60_000 });
  }
  await close();
}

/** More than all scenarios together can spend. */
const FUNDS_MINOR = 1_000_000_000_000n;
