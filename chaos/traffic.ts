import type { Step, Verdict, When } from "./failpoints.ts";

/** What the proxies see and scenarios may bend; one for the whole run. */
export class Traffic {
  /** Times that a message came out of the queue, by message id. */
  readonly deliveries = new Map<string, number>();
  /** Times that the broker accepted a message, by message id. */
  readonly publishes = new Map<string, number>();
  /** Asked for each call to the broker before it is passed on. */
  brokerFault: (call: BrokerCall) => BrokerFault | null = () => null;
  /** Asked for each call to Temporal. */
  temporalFault: (call: TemporalCall) => TemporalFault | null = () => null;
  /** Changes a statement on its way to PostgreSQL; a named one only where a session parses it. */
  rewriteSql: (sql: string) => string = (sql) => sql;
  /** Events that a planted fault kept from the broker, which a batch of one never loses. */
  swallowed = 0;
  /** Path of the ledger's queue: what a planted fault deletes from. */
  queuePath = "";

  calm(): void {
    this.brokerFault = () => null;
    this.temporalFault = () => null;
    this.rewriteSql = (sql) => sql;
  }

  /** Beyond the first of each message, on both sides of the broker's queue. */
  duplicateDeliveries(): number {
    return [...this.deliveries.values()].reduce((sum, count) => sum + count - 1, 0);
  }
}

export type BrokerAction = "PublishBatch" | "ReceiveMessage" | "DeleteMessageBatch" | "other";

export interface BrokerCall {
  readonly workerName: string;
  readonly action: BrokerAction;
}

export type BrokerFault =
  | { readonly kind: "refuse"; readonly status: number; readonly code: string }
  | { readonly kind: "delay"; readonly ms: number }
  /** The broker does it, and nobody hears so. */
  | { readonly kind: "lostAnswer" }
  /** Of a batch only the first half reaches the broker; the others come back in `Failed`. */
  | { readonly kind: "failHalf" }
  /** Received messages come twice, in reverse. */
  | { readonly kind: "repeatReversed" }
  /** A broken relay: half of the batch is never sent, and all of it counts as accepted. */
  | { readonly kind: "swallowHalf" }
  /** A broken intake: what it receives is deleted before anything was started. */
  | { readonly kind: "deleteFirst" };

export interface TemporalCall {
  readonly workerName: string;
  /** The last part of the gRPC path. */
  readonly method: string;
  readonly message: Buffer;
}

export type TemporalFault =
  | { readonly kind: "refuse"; readonly grpcStatus: number }
  | { readonly kind: "lostAnswer" }
  | { readonly kind: "delay"; readonly ms: number };

/** What a proxy needs to know of the worker before it. */
export interface ProxyContext {
  readonly workerName: string;
  readonly role: string;
  readonly traffic: Traffic;
  readonly reach: (when: When, step: Step) => Promise<Verdict>;
}

/** A running proxy of one worker to one service. */
export interface Proxy {
  readonly port: number;
  readonly close: () => Promise<void>;
}
