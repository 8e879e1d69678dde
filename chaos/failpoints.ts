import type { Role } from "../src/worker/roles.ts";

/** A step of the flow that a proxy recognises on the wire, by the role whose worker takes it. */
export const STEPS = {
  /** COMMIT of the transaction that records a payment, capture or refund. */
  commit: "payments",
  /** The relay's claim, where it finds rows. */
  claim: "relay",
  /** PublishBatch: held before it is passed on, or passed on and never heard of again. */
  send: "relay",
  /** SNS's answer to it: held, or passed on and nothing after it. */
  ack: "relay",
  /** The relay's mark of what SNS accepted. */
  mark: "relay",
  /** ReceiveMessage that brings messages. */
  receive: "ledger",
  /** StartWorkflowExecution of `ledger:<messageId>`. */
  start: "ledger",
  /** DeleteMessageBatch. */
  delete: "ledger",
  /** COMMIT of the transaction that books. */
  book: "ledger",
  /** SignalWorkflowExecution: how it was decided. */
  signal: "ledger",
} as const satisfies Readonly<Record<string, Role>>;

export type Step = keyof typeof STEPS;
export type When = "before" | "after";

export interface Failpoint {
  readonly when: When;
  readonly step: Step;
}

/** What a proxy does with the bytes in its hands. */
export type Verdict = "pass" | "drop";

/** Called at the hit with the worker that stands there; the proxies wait for it. */
export type Strike = (workerName: string) => Promise<Verdict>;

export const FAILPOINTS: readonly Failpoint[] = (Object.keys(STEPS) as Step[]).flatMap((step) => [
  { when: "before", step },
  { when: "after", step },
]);

interface Armed {
  readonly failpoint: Failpoint;
  readonly strike: Strike;
  readonly struck: () => void;
  hitsLeft: number;
}

/** What all proxies ask on their way: at the n-th hit of the armed failpoint the strike falls, once. */
export class Failpoints {
  #armed: Armed | null = null;
  /** Bytes of a process that is dead by now. */
  readonly #dead = new Set<string>();
  readonly hits = new Map<string, number>();

  /** Resolves when it was struck; `disarm` leaves the promise open. */
  arm(failpoint: Failpoint, { nth, strike }: { nth: number; strike: Strike }): Promise<void> {
    return new Promise((struck) => {
      this.#armed = { failpoint, strike, struck, hitsLeft: nth };
    });
  }

  disarm(): void {
    this.#armed = null;
  }

  /** From here on nothing of this process is passed on: what it sent before its death may still lie in a socket. */
  bury(workerName: string): void {
    this.#dead.add(workerName);
  }

  async reach(workerName: string, when: When, step: Step): Promise<Verdict> {
    if (this.#dead.has(workerName)) return "drop";
    const name = `${when}-${step}`;
    this.hits.set(name, (this.hits.get(name) ?? 0) + 1);
    const armed = this.#armed;
    if (armed === null || armed.failpoint.when !== when || armed.failpoint.step !== step) {
      return "pass";
    }
    armed.hitsLeft -= 1;
    if (armed.hitsLeft > 0) return "pass";
    this.#armed = null;
    const verdict = await armed.strike(workerName);
    armed.struck();
    return verdict;
  }
}
