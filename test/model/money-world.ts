import { randomUUID } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import { applyLedgerEntries } from "../../src/activities/apply-ledger-entries.ts";
import { cancelPayment } from "../../src/activities/cancel-payment.ts";
import { capturePayment } from "../../src/activities/capture-payment.ts";
import { expirePayment, voidPayment } from "../../src/activities/end-authorization.ts";
import { recordPayment } from "../../src/activities/record-payment.ts";
import { recordRefund } from "../../src/activities/record-refund.ts";
import { changeAccountStatus, getAccount } from "../../src/database/account-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { DomainError } from "../../src/domain/errors.ts";
import { aPayment, anOperation, fundedAccount } from "../support/database.ts";
import type { TestDatabase } from "../support/database.ts";
import { MoneyModel } from "./money-model.ts";
import type { ModelMessage, ModelPayment } from "./money-model.ts";
import type { MoneyStep } from "./money-steps.ts";

const NAMES = ["customer", "friend", "merchant"] as const;

/** One step of a sequence; the numbers pick among what is there by then. */
export type Step =
  | MoneyStep
  | {
      do: "void" | "cancel" | "lapse" | "expire" | "deliver" | "replay" | "contradict";
      which: number;
    };

interface Result {
  readonly outcome: string;
  readonly code?: string;
  readonly requestId?: string;
  readonly receipt?: object;
}

/** A request that was made, as it can be made again. */
interface Made {
  readonly again: (change: { requestId: string }) => Promise<Result>;
  readonly idempotencyKey: string;
  readonly first: Result;
}

/** The model and the database side by side; every sequence has accounts of its own. */
export class World {
  readonly model = new MoneyModel();
  readonly #database: TestDatabase;
  readonly #ids: string[];
  readonly #payments: { id: string; model: ModelPayment }[] = [];
  readonly #made: Made[] = [];

  private constructor(database: TestDatabase, ids: string[]) {
    this.#database = database;
    this.#ids = ids;
  }

  static async create(database: TestDatabase): Promise<World> {
    const run = randomUUID().slice(0, 13);
    const ids = NAMES.map((name) => `${name}-${run}`);
    const world = new World(database, ids);
    for (const [position, id] of ids.entries()) {
      const amountMinor = position === 0 ? 10_000n : 0n;
      const kind = position === 2 ? ("merchant" as const) : ("customer" as const);
      await fundedAccount(database, id, { amountMinor, kind });
      world.model.open(id, amountMinor);
    }
    return world;
  }

  async take(step: Step): Promise<void> {
    switch (step.do) {
      case "pay":
        return await this.#pay(step);
      case "status":
        return await this.#status(step);
      case "deliver":
        return await this.#deliver(pick(this.model.messages, step.which));
      case "replay":
      case "contradict":
        return await this.#again(step.do, pick(this.#made, step.which));
      case "capture":
      case "refund":
      case "void":
      case "cancel":
      case "lapse":
      case "expire": {
        const payment = pick(this.#payments, step.which);
        if (payment !== undefined) await this.#operate(step, payment);
      }
    }
  }

  async #pay(step: Extract<Step, { do: "pay" }>): Promise<void> {
    const source = this.#ids[step.from % 3] ?? "";
    const destination = this.#ids[(step.from + 1 + (step.to % 2)) % 3] ?? "";
    const expected = this.model.pay({
      source,
      destination,
      amount: BigInt(step.amount),
      isManual: step.isManual,
    });
    const input = aPayment({
      source,
      destination,
      amountMinor: step.amount.toString(),
      ...(step.isManual ? { capture: "manual" as const, expiresInSeconds: 3_600 } : {}),
    });
    await this.#make(
      typeof expected === "string" ? expected : null,
      async (change) => await recordPayment(this.#database.app, { ...input, ...change }),
      input,
    );
    if (typeof expected !== "string") {
      this.#payments.push({ id: input.paymentId, model: expected });
    }
  }

  async #operate(
    step: Extract<Step, { which: number }>,
    { id, model: payment }: { id: string; model: ModelPayment },
  ): Promise<void> {
    const { app, admin } = this.#database;
    if (step.do === "capture") {
      const asked = step.amount === null ? null : BigInt(step.amount);
      const expected = this.model.capture(payment, asked, step.final);
      const amountMinor = asked?.toString() ?? null;
      const input = anOperation(id, { amountMinor, currency: null, final: step.final });
      await this.#make(
        expected,
        async (change) => await capturePayment(app, { ...input, ...change }),
        input,
      );
    } else if (step.do === "refund") {
      const asked = step.amount === null ? null : BigInt(step.amount);
      const expected = this.model.refund(payment, asked);
      const amountMinor = asked?.toString() ?? null;
      const input = {
        refundId: uuidv7(),
        ...anOperation(id, { amountMinor, currency: null, reason: null }),
      };
      await this.#make(
        expected,
        async (change) => await recordRefund(app, { ...input, ...change }),
        input,
      );
    } else if (step.do === "void") {
      const input = anOperation(id, {});
      await this.#make(
        this.model.void(payment),
        async (change) => await voidPayment(app, { ...input, ...change }),
        input,
      );
    } else if (step.do === "cancel") {
      const changed = this.model.cancel(payment);
      const found = await cancelPayment(app, { paymentId: id });
      same([found?.changed, found?.status], [changed, payment.status]);
    } else if (step.do === "lapse" && payment.isManual) {
      // Its time is over and its timer has not run yet.
      payment.isExpired = true;
      await admin("UPDATE remit.payments SET expires_at = clock_timestamp() WHERE id = $1", [id]);
    } else if (step.do === "expire") {
      this.model.expire(payment);
      same((await expirePayment(app, id))?.status, payment.status);
    }
  }

  async #make(
    expected: string | null,
    again: Made["again"],
    { requestId, idempotencyKey }: { requestId: string; idempotencyKey: string },
  ): Promise<void> {
    const first = await again({ requestId });
    same(
      [first.outcome, first.code],
      expected === null ? ["recorded", undefined] : ["refused", expected],
    );
    this.#made.push({ again, first, idempotencyKey });
  }

  async #again(how: "replay" | "contradict", made: Made | undefined): Promise<void> {
    if (made === undefined) return;
    const requestId = randomUUID();
    if (how === "contradict") {
      const { idempotencyKey } = made;
      const other = aPayment({ idempotencyKey, description: "of something else" });
      const result: Result = await recordPayment(this.#database.app, other);
      same([result.outcome, result.code], ["contradictory", "idempotency_key_reused"]);
      return;
    }
    const result = await made.again({ requestId });
    const { first } = made;
    same(
      [result.outcome, result.code],
      first.outcome === "refused" ? ["refused", first.code] : ["repeated", undefined],
    );
    same(idsOf(result), idsOf(first));
  }

  async #status({ account, status }: Extract<Step, { do: "status" }>): Promise<void> {
    const accountId = this.#ids[account % 3] ?? "";
    const expected = this.model.setStatus(accountId, status);
    const found = await changeAccountStatus(this.#database.app, { accountId, status }).then(
      () => null,
      (error: unknown) => (error instanceof DomainError ? error.code : String(error)),
    );
    same(found, expected);
  }

  async #deliver(message: ModelMessage | undefined): Promise<void> {
    if (message === undefined) return;
    const wasDecided = message.decided !== null;
    const error = this.model.deliver(message);
    const applied = await applyLedgerEntries(this.#database.app, await this.#wire(message));
    same(
      [applied.outcome, applied.error, applied.repeated],
      [error === null ? "booked" : "refused", error, wasDecided],
    );
  }

  /** The n-th message of its kind of its payment, as the outbox has it. */
  async #wire(message: ModelMessage) {
    const { payment, kind } = message;
    const id = this.#payments.find(({ model }) => model === payment)?.id;
    const siblings = this.model.messages.filter(
      (one) => one.payment === payment && one.kind === kind,
    );
    const type = {
      payment: "payment.created",
      capture: "payment.captured",
      refund: "refund.created",
    };
    const [row] = await this.#database.admin<{ messageId: string; type: string; payload: string }>(
      `SELECT id AS "messageId", type, payload::text AS payload
         FROM remit.outbox
        WHERE type = $2 AND payload #>> '{data,paymentId}' = $1
        ORDER BY id
       OFFSET $3
        LIMIT 1`,
      [id, type[kind], siblings.indexOf(message)],
    );
    if (row === undefined) throw new Error(`payment ${id} has no such ${type[kind]}`);
    return row;
  }

  async deliverAll(): Promise<void> {
    for (const message of [...this.model.messages].toReversed()) {
      if (message.decided === null) await this.#deliver(message);
    }
  }

  async compare(): Promise<void> {
    for (const [id, expected] of this.model.accounts) {
      const found = await getAccount(this.#database.app, id);
      same(
        [id, found?.postedMinor, found?.heldMinor, found?.status],
        [id, expected.posted, expected.held, expected.status],
      );
    }
    for (const { id, model } of this.#payments) {
      const found = await getPayment(this.#database.app, id);
      same(
        [id, found?.status, found?.capturedMinor, found?.refundedMinor],
        [id, model.status, model.captured, model.refunded],
      );
    }
  }
}

function pick<Item>(items: readonly Item[], which: number): Item | undefined {
  return items.length === 0 ? undefined : items[which % items.length];
}

/** What stays the same in every answer to one key; a status is as it is by then, and `lapse` has moved the expiry. */
function idsOf({ receipt }: Result): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(receipt ?? {}).filter(([name]) => name !== "status" && name !== "expiresAt"),
  );
}

/** What the database has, and what the model says. */
function same(found: unknown, expected: unknown): void {
  expect(found).toEqual(expected);
}
