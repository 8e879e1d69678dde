import { randomUUID } from "node:crypto";
import type { PaymentAnswer, PaymentClient } from "../src/client/payment-client.ts";
import { DomainError } from "../src/domain/errors.ts";
import type { Asked, Oracle } from "./oracle.ts";
import { pause } from "./pause.ts";
import type { Random } from "./random.ts";

export const CUSTOMERS = ["ann", "bob", "cleo", "dan", "eve", "fay"] as const;
export const MERCHANTS = ["shop", "hotel", "cab"] as const;

export interface LaneOptions {
  readonly payments: PaymentClient;
  readonly oracle: Oracle;
  readonly random: Random;
  readonly scenario: string;
  /** Aborted when nobody waits for answers any more. */
  readonly giveUp: AbortSignal;
  /** Told of each payment's first answer. */
  readonly onAnswer?: ((ms: number) => void) | undefined;
}

const AGAIN_MS_MIN = 200;
/**
 * Clients that come back at once keep a system that is behind from ever catching up: what it does then is for requests whose
 * deadline has passed.
 */
const AGAIN_MS_MAX = 30_000;

/** A client of Remit's: it writes down what it asks for, and asks until it has an answer. */
export class Lane {
  readonly #options: LaneOptions;

  constructor(options: LaneOptions) {
    this.#options = options;
  }

  /**
   * One payment with what belongs to it; the mix is seven automatic, one captured, one voided, one refunded. Null where
   * there was no answer.
   */
  async askOnce(askedAtMs: number = Date.now()): Promise<PaymentAnswer | null> {
    const { random } = this.#options;
    const kind = random.integer(1, 10);
    const asked = this.#write({
      askedAtMs,
      kind: "pay",
      from: random.oneOf(CUSTOMERS),
      to: random.oneOf(MERCHANTS),
      amountMinor: BigInt(random.integer(1, 9_999)),
      isManual: kind === 8 || kind === 9,
    });
    const answer = await this.#pay(asked);
    if (answer === null) return null;
    this.#options.onAnswer?.(Date.now() - askedAtMs);
    const isRepeated = random.integer(1, 5) === 1;
    if (isRepeated) await this.#pay(asked);
    if (kind === 8) await this.#capture(asked, answer);
    if (kind === 9) await this.#void(asked, answer);
    if (kind === 10) await this.#refund(asked, answer);
    return answer;
  }

  /** Resolves when the payment has come to its end, whatever that is. */
  async untilEnd(answer: PaymentAnswer): Promise<void> {
    const { payments } = this.#options;
    const { idempotencyKey } = answer.parameters;
    await this.#untilAnswered(
      idempotencyKey,
      async () => await payments.waitForEnd(answer, { timeoutMs: END_MS_MAX }),
    );
  }

  #write(
    part: Pick<Asked, "kind" | "from" | "to" | "amountMinor" | "isManual"> & {
      paymentKey?: string;
      askedAtMs?: number;
    },
  ): Asked {
    const { oracle, scenario } = this.#options;
    const key = `${part.kind}-${randomUUID()}`;
    return oracle.write({
      askedAtMs: Date.now(),
      ...part,
      key,
      scenario,
      paymentKey: part.paymentKey ?? key,
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
    const asked = this.#write({ ...payment, askedAtMs: Date.now(), kind: "capture", amountMinor });
    const request = { key: asked.key, amountMinor: amountMinor.toString(), final: true };
    const done = await this.#untilAnswered(
      asked.key,
      async () => await payments.capture(handleOf(answer), request),
    );
    if (done !== null) this.#options.oracle.answered(asked.key, done.captureId);
  }

  async #void(payment: Asked, answer: PaymentAnswer): Promise<void> {
    const { payments } = this.#options;
    const asked = this.#write({ ...payment, askedAtMs: Date.now(), kind: "void", amountMinor: 0n });
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
    const asked = this.#write({ ...payment, askedAtMs: Date.now(), kind: "refund", amountMinor });
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
    for (let unanswered = 0; !giveUp.aborted; unanswered += 1) {
      if (unanswered > 0) await pause(backOffMs(unanswered), giveUp);
      try {
        return await ask();
      } catch (error) {
        const code = error instanceof DomainError ? error.code : null;
        if (code === null || !REPEATABLE.has(code)) {
          oracle.contradictions.push(`key ${key}: ${code ?? ""} ${String(error)}`);
          return null;
        }
      }
    }
    return null;
  }
}

const END_MS_MAX = 20_000;
const REPEATABLE = new Set(["outcome_unknown", "temporal_unreachable", "wait_timeout"]);

/** Not drawn from the seed: how often a client has to ask is no part of what is repeated by it. */
function backOffMs(unanswered: number): number {
  const ceiling = Math.min(AGAIN_MS_MIN * 2 ** unanswered, AGAIN_MS_MAX);
  return AGAIN_MS_MIN + Math.random() * ceiling;
}

function handleOf({
  paymentId,
  parameters,
}: PaymentAnswer): Parameters<PaymentClient["capture"]>[0] {
  const { merchant, idempotencyKey, currency, capture } = parameters;
  return { paymentId, merchant, idempotencyKey, currency, capture };
}
