/**
 * What the money must do, written from the design and from nothing in src/: an oracle in memory. Amounts in minor units.
 * Each method answers with the code of the refusal, or null where it is done.
 */

export type Status = "active" | "frozen" | "closed";

export interface ModelAccount {
  posted: bigint;
  held: bigint;
  status: Status;
}

export interface ModelPart {
  readonly amount: bigint;
  status: "pending" | "settled" | "failed";
}

export interface ModelPayment {
  readonly source: string;
  readonly destination: string;
  readonly amount: bigint;
  readonly isManual: boolean;
  status: string;
  captured: bigint;
  refunded: bigint;
  isExpired: boolean;
  readonly captures: ModelPart[];
}

/** An event on its way to the ledger. */
export interface ModelMessage {
  readonly payment: ModelPayment;
  readonly kind: "payment" | "capture" | "refund";
  readonly part: ModelPart | null;
  /** Once decided: null for booked, else the error. */
  decided: { error: string | null } | null;
}

export class MoneyModel {
  readonly accounts = new Map<string, ModelAccount>();
  readonly messages: ModelMessage[] = [];

  open(id: string, posted: bigint): void {
    this.accounts.set(id, { posted, held: 0n, status: "active" });
  }

  #at(id: string): ModelAccount {
    const account = this.accounts.get(id);
    if (account === undefined) throw new Error(`no account ${id}`);
    return account;
  }

  /** Why `from` can't give to `to` now. */
  #refuseMove(from: string, to: string, amount: bigint): string | null {
    const [giver, taker] = [this.#at(from), this.#at(to)];
    if (giver.status === "frozen") return "account_frozen";
    if (giver.status === "closed" || taker.status === "closed") return "account_closed";
    return giver.posted - giver.held < amount ? "insufficient_funds" : null;
  }

  pay(
    order: Pick<ModelPayment, "source" | "destination" | "amount" | "isManual">,
  ): ModelPayment | string {
    const refusal = this.#refuseMove(order.source, order.destination, order.amount);
    if (refusal !== null) return refusal;
    this.#at(order.source).held += order.amount;
    const payment: ModelPayment = {
      ...order,
      status: order.isManual ? "authorized" : "pending",
      captured: 0n,
      refunded: 0n,
      isExpired: false,
      captures: [],
    };
    if (!order.isManual) this.#send({ payment, kind: "payment", part: null });
    return payment;
  }

  #send(message: Omit<ModelMessage, "decided">): void {
    this.messages.push({ ...message, decided: null });
  }

  capture(payment: ModelPayment, asked: bigint | null, saidFinal: boolean): string | null {
    if (payment.status !== "authorized" || payment.isExpired) return "payment_not_capturable";
    if (payment.captures.some(({ status }) => status === "pending")) return "capture_in_progress";
    const left = payment.amount - payment.captured;
    const amount = asked ?? left;
    if (amount > left) return "capture_exceeds_authorized";
    const part: ModelPart = { amount, status: "pending" };
    payment.captures.push(part);
    payment.captured += amount;
    if (saidFinal || amount === left) {
      payment.status = "captured";
      this.#at(payment.source).held -= left - amount;
    }
    this.#send({ payment, kind: "capture", part });
    return null;
  }

  /** Void, cancel and expiry of an authorization differ in the name of the end alone. */
  #giveBack(payment: ModelPayment, ending: string): void {
    this.#at(payment.source).held -= payment.amount - payment.captured;
    const isOpen = payment.captures.some(({ status }) => status === "pending");
    payment.status = isOpen ? "captured" : payment.captured > 0n ? "settled" : ending;
  }

  void(payment: ModelPayment): string | null {
    if (payment.status !== "authorized") return "payment_not_voidable";
    this.#giveBack(payment, "voided");
    return null;
  }

  /** Whether it has ended the payment. */
  cancel(payment: ModelPayment): boolean {
    if (payment.status === "authorized") this.#giveBack(payment, "voided");
    else if (payment.status === "pending") {
      payment.status = "cancelled";
      this.#at(payment.source).held -= payment.amount;
    } else return false;
    return true;
  }

  expire(payment: ModelPayment): void {
    if (payment.status === "authorized" && payment.isExpired) this.#giveBack(payment, "expired");
  }

  refund(payment: ModelPayment, asked: bigint | null): string | null {
    const booked = payment.isManual
      ? payment.captures
          .filter(({ status }) => status === "settled")
          .reduce((sum, { amount }) => sum + amount, 0n)
      : payment.captured;
    const left = booked - payment.refunded;
    if (booked === 0n || (left === 0n && asked === null)) return "payment_not_refundable";
    const amount = asked ?? left;
    if (amount > left) return "refund_exceeds_captured";
    const refusal = this.#refuseMove(payment.destination, payment.source, amount);
    if (refusal !== null) return refusal;
    this.#at(payment.destination).held += amount;
    payment.refunded += amount;
    this.#send({ payment, kind: "refund", part: { amount, status: "pending" } });
    return null;
  }

  setStatus(id: string, status: Status): string | null {
    const account = this.#at(id);
    if (account.status === status) return null;
    if (account.status === "closed") return "account_closed";
    if (status === "closed" && (account.posted !== 0n || account.held !== 0n)) {
      return "account_not_empty";
    }
    account.status = status;
    return null;
  }

  /** The ledger's decision about a message; the same one however often it comes. */
  deliver(message: ModelMessage): string | null {
    message.decided ??= { error: this.#book(message) };
    return message.decided.error;
  }

  #book({ payment, kind, part }: ModelMessage): string | null {
    if (kind === "payment") return this.#bookPayment(payment);
    if (part === null) throw new Error("a part is missing");
    return kind === "capture" ? this.#bookCapture(payment, part) : this.#bookRefund(payment, part);
  }

  #bookPayment(payment: ModelPayment): string | null {
    if (payment.status !== "pending") return `payment_is_${payment.status}`;
    this.#at(payment.source).held -= payment.amount;
    if (this.#at(payment.destination).status === "closed") {
      payment.status = "failed";
      return "account_closed";
    }
    this.#move(payment.source, payment.destination, payment.amount);
    payment.status = "settled";
    payment.captured = payment.amount;
    return null;
  }

  #bookCapture(payment: ModelPayment, part: ModelPart): string | null {
    const wasCaptured = payment.status === "captured";
    if (this.#at(payment.destination).status !== "closed") {
      this.#at(payment.source).held -= part.amount;
      this.#move(payment.source, payment.destination, part.amount);
      part.status = "settled";
      if (wasCaptured) payment.status = "settled";
      return null;
    }
    part.status = "failed";
    payment.captured -= part.amount;
    // While it is authorized the amount stays held and can be captured again.
    if (wasCaptured) {
      this.#at(payment.source).held -= part.amount;
      payment.status = payment.captured > 0n ? "settled" : "failed";
    }
    return "account_closed";
  }

  #bookRefund(payment: ModelPayment, part: ModelPart): string | null {
    this.#at(payment.destination).held -= part.amount;
    if (this.#at(payment.source).status === "closed") {
      part.status = "failed";
      payment.refunded -= part.amount;
      return "account_closed";
    }
    this.#move(payment.destination, payment.source, part.amount);
    part.status = "settled";
    return null;
  }

  #move(from: string, to: string, amount: bigint): void {
    this.#at(from).posted -= amount;
    this.#at(to).posted += amount;
  }
}
