import { closeSync, openSync, writeSync } from "node:fs";

/** What a client asked for, written down before it asks. */
export interface Asked {
  readonly key: string;
  readonly scenario: string;
  readonly kind: "pay" | "capture" | "void" | "refund";
  /** The key of the payment that this is about; its own where it is one. */
  readonly paymentKey: string;
  readonly from: string;
  readonly to: string;
  readonly amountMinor: bigint;
  readonly isManual: boolean;
  readonly askedAtMs: number;
}

/** The ledger of what was asked: appended to a file first, so that it outlives whoever asks. */
export class Oracle {
  readonly #file: number;
  readonly #asked: Asked[] = [];
  /** Ids by key of what was answered. */
  readonly answers = new Map<string, string>();
  /** What an answer contradicted. */
  readonly contradictions: string[] = [];

  constructor(path: string) {
    this.#file = openSync(path, "a", 0o600);
  }

  write(asked: Asked): Asked {
    writeSync(
      this.#file,
      `${JSON.stringify({ ...asked, amountMinor: asked.amountMinor.toString() })}\n`,
    );
    this.#asked.push(asked);
    return asked;
  }

  /** The same key must always get the same id. */
  answered(key: string, id: string): void {
    const before = this.answers.get(key);
    if (before !== undefined && before !== id) {
      this.contradictions.push(`key ${key} was answered with ${before}, then with ${id}`);
    }
    this.answers.set(key, id);
  }

  of(scenario: string): Asked[] {
    return this.#asked.filter((asked) => asked.scenario === scenario);
  }

  all(): readonly Asked[] {
    return this.#asked;
  }

  /** What each account must have, from what was asked alone. */
  balances(): Map<string, bigint> {
    const balances = new Map<string, bigint>();
    const add = (account: string, amount: bigint): void => {
      balances.set(account, (balances.get(account) ?? 0n) + amount);
    };
    for (const { kind, isManual, from, to, amountMinor } of this.#asked) {
      const moves = kind === "pay" ? !isManual : kind !== "void";
      if (!moves) continue;
      const [source, destination] = kind === "refund" ? [to, from] : [from, to];
      add(source, -amountMinor);
      add(destination, amountMinor);
    }
    return balances;
  }

  close(): void {
    closeSync(this.#file);
  }
}
