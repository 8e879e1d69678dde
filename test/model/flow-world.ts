import { randomUUID } from "node:crypto";
import type { PaymentAnswer } from "../../src/client/payment-client.ts";
import type { PaymentHandle } from "../../src/client/workflow-starts.ts";
import { changeAccountStatus, getAccount } from "../../src/database/account-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { DomainError } from "../../src/domain/errors.ts";
import { fundedAccount } from "../support/database.ts";
import type { Flow } from "../support/flow.ts";
import { MoneyModel } from "./money-model.ts";
import type { ModelPayment } from "./money-model.ts";
import type { MoneyStep } from "./money-steps.ts";

/** One step of a sequence. */
export type FlowStep =
  MoneyStep | { do: "void" | "cancel"; which: number } | { do: "replay" | "reuse"; which: number };

/** What a call came to: the code of its refusal, or null and what identifies what it made. */
interface Answer {
  readonly code: string | null;
  readonly id: string | null;
  readonly replayed: boolean | null;
}

/** A request that was made, as it can be made again, and its key. */
interface Made {
  readonly key: string;
  readonly ask: () => Promise<Answer>;
  readonly first: Answer;
}

interface Followed {
  readonly answer: PaymentAnswer;
  readonly handle: PaymentHandle;
  readonly model: ModelPayment;
}

/** Longer than a busy machine needs: a late answer would be `outcome_unknown`, which is no decision. */
const PATIENT = { deadlineMs: 60_000 };
const NAMES = ["customer", "friend", "merchant"] as const;

/** The model beside a whole running Remit, asked through its client; every sequence has accounts of its own. */
export class FlowWorld {
  readonly #flow: Flow;
  readonly #model = new MoneyModel();
  readonly #ids: readonly string[];
  readonly #payments: Followed[] = [];
  readonly #made: Made[] = [];

  private constructor(flow: Flow, ids: readonly string[]) {
    this.#flow = flow;
    this.#ids = ids;
  }

  static async create(flow: Flow): Promise<FlowWorld> {
    const run = randomUUID().slice(0, 13);
    const world = new FlowWorld(
      flow,
      NAMES.map((name) => `${name}-${run}`),
    );
    for (const [position, id] of world.#ids.entries()) {
      const amountMinor = position === 0 ? 10_000n : 0n;
      const kind = position === 2 ? ("merchant" as const) : ("customer" as const);
      await fundedAccount(flow.database, id, { amountMinor, kind });
      world.#model.open(id, amountMinor);
    }
    return world;
  }

  async take(step: FlowStep): Promise<void> {
    switch (step.do) {
      case "pay":
        return await this.#pay(step);
      case "status":
        return await this.#status(step);
      case "replay":
      case "reuse": {
        const made = pick(this.#made, step.which);
        if (made === undefined) return;
        return step.do === "replay" ? await replay(made) : await this.#reuse(made);
      }
      case "capture":
      case "refund":
      case "void":
      case "cancel": {
        const payment = pick(this.#payments, step.which);
        if (payment !== undefined) await this.#operate(step, payment);
      }
    }
  }

  async #pay(step: Extract<FlowStep, { do: "pay" }>): Promise<void> {
    const source = this.#ids[step.from % 3] ?? "";
    const destination = this.#ids[(step.from + 1 + (step.to % 2)) % 3] ?? "";
    const { amount, isManual } = step;
    const expected = this.#model.pay({ source, destination, amount: BigInt(amount), isManual });
    const key = `k-${randomUUID()}`;
    const request = {
      key,
      from: source,
      to: destination,
      amountMinor: amount.toString(),
      currency: "EUR",
      ...(isManual ? { capture: "manual" as const } : {}),
    };
    let answer: PaymentAnswer | undefined;
    await this.#make(key, typeof expected === "string" ? expected : null, async () => {
      answer = await this.#flow.payments.pay(request, PATIENT);
      return { id: answer.paymentId, replayed: answer.replayed };
    });
    if (typeof expected === "string" || answer === undefined) return;
    const handle = { paymentId: answer.paymentId, ...answer.parameters };
    this.#payments.push({ answer, handle, model: expected });
  }

  async #operate(
    step: Exclude<FlowStep, { do: "pay" | "status" | "replay" | "reuse" }>,
    { handle, model }: Followed,
  ): Promise<void> {
    const { payments } = this.#flow;
    const key = `k-${randomUUID()}`;
    switch (step.do) {
      case "capture": {
        const { final } = step;
        const expected = this.#model.capture(model, askedOf(step), final);
        const request = { key, final, ...amountOf(step) };
        return await this.#make(key, expected, async () => {
          const { captureId, replayed } = await payments.capture(handle, request, PATIENT);
          return { id: captureId, replayed };
        });
      }
      case "refund": {
        const expected = this.#model.refund(model, askedOf(step));
        const request = { key, ...amountOf(step) };
        return await this.#make(key, expected, async () => {
          const { refundId, replayed } = await payments.refund(handle, request, PATIENT);
          return { id: refundId, replayed };
        });
      }
      case "void":
        return await this.#make(key, this.#model.void(model), async () => {
          const { paymentId, replayed } = await payments.void(handle, { key }, PATIENT);
          return { id: paymentId, replayed };
        });
      case "cancel": {
        const changed = this.#model.cancel(model);
        const { code, id } = await answerOf(async () => {
          const receipt = await payments.cancel(handle, PATIENT);
          return { id: `${receipt.status}, ${receipt.changed}`, replayed: !receipt.changed };
        });
        const isDone = changed || ["cancelled", "voided"].includes(model.status);
        same(
          [code, id],
          isDone ? [null, `${model.status}, ${changed}`] : ["payment_not_cancellable", null],
        );
      }
    }
  }

  async #make(
    key: string,
    expected: string | null,
    ask: () => Promise<{ id: string; replayed: boolean }>,
  ): Promise<void> {
    const first = await answerOf(ask);
    same([first.code, first.replayed], [expected, false]);
    this.#made.push({ key, ask: async () => await answerOf(ask), first });
  }

  /** All operations share one space of keys. */
  async #reuse({ key }: Made): Promise<void> {
    const [from = "", to = ""] = this.#ids;
    const strange = { key, from, to, amountMinor: "999999", currency: "EUR" };
    const found = await answerOf(async () => {
      const { paymentId, replayed } = await this.#flow.payments.pay(strange, PATIENT);
      return { id: paymentId, replayed };
    });
    same(found.code, "idempotency_key_reused");
  }

  async #status({ account, status }: Extract<FlowStep, { do: "status" }>): Promise<void> {
    const accountId = this.#ids[account % 3] ?? "";
    const expected = this.#model.setStatus(accountId, status);
    const { code } = await answerOf(async () => {
      await changeAccountStatus(this.#flow.database.app, { accountId, status });
      return { id: accountId, replayed: false };
    });
    same(code, expected);
  }

  /** The ledger has decided all that was on its way. */
  settle(): void {
    for (const message of this.#model.messages) this.#model.deliver(message);
  }

  async compare(): Promise<void> {
    const { app } = this.#flow.database;
    for (const [id, expected] of this.#model.accounts) {
      const found = await getAccount(app, id);
      same(
        [id, found?.postedMinor, found?.heldMinor, found?.status],
        [id, expected.posted, expected.held, expected.status],
      );
    }
    for (const { handle, model } of this.#payments) {
      const { paymentId } = handle;
      const found = await getPayment(app, paymentId);
      same(
        [paymentId, found?.status, found?.capturedMinor, found?.refundedMinor],
        [paymentId, model.status, model.captured, model.refunded],
      );
    }
  }

  /** The run of each payment that is over has ended, and says the same. */
  async compareRuns(): Promise<void> {
    for (const { answer, model } of this.#payments) {
      if (model.status === "authorized") continue;
      const { paymentId, status } = await this.#flow.payments.waitForEnd(answer, {
        timeoutMs: 30_000,
      });
      same([paymentId, status], [answer.paymentId, model.status]);
    }
  }
}

async function replay({ ask, first }: Made): Promise<void> {
  same(await ask(), { ...first, replayed: true });
}

async function answerOf(ask: () => Promise<{ id: string; replayed: boolean }>): Promise<Answer> {
  try {
    return { code: null, ...(await ask()) };
  } catch (error) {
    if (!(error instanceof DomainError)) throw error;
    const { replayed } = error.details;
    return {
      code: error.code,
      id: null,
      replayed: typeof replayed === "boolean" ? replayed : null,
    };
  }
}

function askedOf({ amount }: { amount: number | null }): bigint | null {
  return amount === null ? null : BigInt(amount);
}

function amountOf({ amount }: { amount: number | null }): { amountMinor?: string } {
  return amount === null ? {} : { amountMinor: amount.toString() };
}

function pick<Item>(items: readonly Item[], which: number): Item | undefined {
  return items.length === 0 ? undefined : items[which % items.length];
}

/** What Remit says, and what the model says. */
function same(found: unknown, expected: unknown): void {
  expect(found).toEqual(expected);
}
