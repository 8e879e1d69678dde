import { setTimeout as delay } from "node:timers/promises";
import { createPaymentClient } from "../src/client/payment-client.ts";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { CUSTOMERS, Lane } from "./lane.ts";
import type { Oracle } from "./oracle.ts";
import type { Random } from "./random.ts";
import type { ChaosStack } from "./stack.ts";

export interface LoadOptions {
  readonly stack: ChaosStack;
  readonly oracle: Oracle;
  readonly random: Random;
  readonly scenario: string;
  readonly onAnswer?: (ms: number) => void;
}

export interface Load {
  /** Asks for nothing new, and resolves when all that was asked has its answer; false where that takes too long. */
  readonly stop: (withinMs: number) => Promise<boolean>;
}

/** Asks by this lane until it is told to stop, and resolves when all that was asked has its answer. */
type Drive = (lane: Lane, stopping: AbortSignal) => Promise<void>;

/** Clients that pay all the while: automatic payments, holds with captures or voids, refunds, and keys used twice. */
export async function startLoad(options: LoadOptions & { readonly lanes: number }): Promise<Load> {
  return await drivenLoad(
    options,
    inLanes(options.lanes, async (lane) => {
      await lane.askOnce();
      await delay(PAUSE_MS);
    }),
  );
}

/** As many clients as there are lanes, each of which asks again and again. */
export function inLanes(lanes: number, ask: (lane: Lane) => Promise<void>): Drive {
  return async (lane, stopping) => {
    const askOn = async (): Promise<void> => {
      while (!stopping.aborted) await ask(lane);
    };
    await Promise.all(Array.from({ length: lanes }, askOn));
  };
}

export async function drivenLoad(options: LoadOptions, drive: Drive): Promise<Load> {
  const { client, close } = await connectTemporal({
    address: options.stack.temporalAddress,
    namespace: options.stack.temporalNamespace,
    connectionOptions: {},
  });
  const payments = createPaymentClient({ client });
  const stopping = new AbortController();
  const giveUp = new AbortController();
  const lane = new Lane({ ...options, payments, giveUp: giveUp.signal });
  const driven = drive(lane, stopping.signal);
  return {
    stop: async (withinMs) => {
      stopping.abort();
      const late = delay(withinMs, false, { ref: false });
      const isAnswered = await Promise.race([driven.then(() => true), late]);
      giveUp.abort();
      await driven;
      await close();
      return isAnswered;
    },
  };
}

/** Between two payments of one client: the machine's two cores are for Remit. */
const PAUSE_MS = 300;

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
