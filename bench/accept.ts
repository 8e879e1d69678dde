import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { WithStartWorkflowOperation } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { Pool } from "pg";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { createPaymentClient } from "../src/client/payment-client.ts";
import type { PayOptions, PaymentAnswer, PaymentClient } from "../src/client/payment-client.ts";
import { ACCEPT_DEADLINE_MS } from "../src/client/update-call.ts";
import { createDatabase } from "../src/database/database.ts";
import { verify } from "../src/database/invariants.ts";
import { DomainError } from "../src/domain/errors.ts";
import { accepted } from "./floor-workflows.ts";
import type { floorDecision, floorPayment } from "./floor-workflows.ts";
import { closedLoop, median, openLoop, quantile } from "./load.ts";
import type { BenchOptions } from "./options.ts";
import type { Reporter } from "./report.ts";
import { startBenchStack } from "./stack.ts";

const FLOOR_TASK_QUEUE = "bench-floor";
const IN_FLIGHT = 12;
/**
 * The open loop runs at this share of what the floor can do from start to end (every accepted payment goes on to be
 * settled), so that it measures latency and not a queue.
 */
const OPEN_LOOP_SHARE = 0.4;
const ACCEPTS_A_ROUND = 120;
const SETTLED_A_ROUND = 120;

interface AcceptBench {
  readonly client: Client;
  readonly admin: Pool;
  readonly payments: PaymentClient;
  readonly rounds: number;
  readonly reporter: Reporter;
}

/**
 * Accepting and settling against what Temporal alone costs. Floor and subject take turns on the same server and machine;
 * each figure is the median of the rounds with its spread.
 */
export async function runAcceptSuite({ rounds }: BenchOptions, reporter: Reporter): Promise<void> {
  const stack = await startBenchStack();
  const admin = new Pool({ connectionString: stack.settings.adminDatabaseUrl, max: 1 });
  try {
    const { client, close } = await connectTemporal({
      address: stack.settings.temporal.address,
      namespace: stack.settings.temporal.namespace,
      connectionOptions: stack.settings.temporal.connectionOptions,
    });
    try {
      const payments = createPaymentClient({ client });
      const bench = { client, admin, payments, rounds, reporter };
      await fund(payments);
      await acceptLatency(bench);
      await settledThroughput(bench);
      await closeTheBooks(stack.settings.databaseUrl);
    } finally {
      await close();
    }
  } finally {
    await admin.end();
    await stack.close();
  }
}

async function acceptLatency({ client, payments, rounds, reporter }: AcceptBench): Promise<void> {
  const floor = async (): Promise<void> => void (await floorAccept(client, { waits: false }));
  const remit = async (): Promise<void> => void (await payUntilAnswered(payments));
  await closedLoop(remit, { inFlight: IN_FLIGHT, count: 50 });
  await closedLoop(async () => await floorSettle(client), { inFlight: IN_FLIGHT, count: 50 });
  const capacity = await closedLoop(async () => await floorSettle(client), {
    inFlight: IN_FLIGHT,
    count: 200,
  });
  const load = { perSecond: capacity * OPEN_LOOP_SHARE, count: ACCEPTS_A_ROUND };
  const ratios: { p50: number; p99: number }[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const floorMs = await openLoop(floor, load);
    const remitMs = await openLoop(remit, load);
    ratios.push({
      p50: median(remitMs) / median(floorMs),
      p99: quantile(remitMs, 0.99) / quantile(floorMs, 0.99),
    });
  }
  reporter.figure({
    name: "accept.p50_vs_floor",
    unit: "ratio",
    rounds: ratios.map(({ p50 }) => p50),
    target: { atMost: 1.5 },
    details: { openLoopPerSecond: load.perSecond },
  });
  reporter.figure({
    name: "accept.p99_vs_floor",
    unit: "ratio",
    rounds: ratios.map(({ p99 }) => p99),
    details: { openLoopPerSecond: load.perSecond },
  });
}

async function settledThroughput({
  client,
  payments,
  admin,
  rounds,
  reporter,
}: AcceptBench): Promise<void> {
  const load = { inFlight: IN_FLIGHT, count: SETTLED_A_ROUND };
  const floor = async (): Promise<void> => await floorSettle(client);
  const remit = async (): Promise<void> => {
    const answer = await payUntilAnswered(payments);
    await payments.waitForEnd(answer, { timeoutMs: 60_000 });
  };
  const receipt = async (): Promise<void> =>
    void (await payUntilAnswered(payments, { endsAtReceipt: true }));
  const ratios: { whole: number; receipts: number }[] = [];
  let floorPerSecond = 0;
  for (let round = 0; round < rounds; round += 1) {
    floorPerSecond = await closedLoop(floor, load);
    const whole = (await closedLoop(remit, load)) / floorPerSecond;
    const since = performance.now();
    await closedLoop(receipt, load);
    await untilBooked(admin);
    const receiptsPerSecond = load.count / ((performance.now() - since) / 1_000);
    ratios.push({ whole, receipts: receiptsPerSecond / floorPerSecond });
  }
  reporter.figure({
    name: "settled.throughput_vs_floor",
    unit: "ratio",
    rounds: ratios.map(({ whole }) => whole),
    target: { atLeast: 0.7 },
    details: { inFlight: IN_FLIGHT, floorPerSecond },
  });
  reporter.figure({
    name: "settled.receipt_throughput_vs_floor",
    unit: "ratio",
    rounds: ratios.map(({ receipts }) => receipts),
    details: { inFlight: IN_FLIGHT, floorPerSecond },
  });
}

async function floorAccept(client: Client, input: { waits: boolean }): Promise<string> {
  const workflowId = `floor-${randomUUID()}`;
  await client.workflow.executeUpdateWithStart(accepted, {
    startWorkflowOperation: new WithStartWorkflowOperation<typeof floorPayment>("floorPayment", {
      workflowId,
      taskQueue: FLOOR_TASK_QUEUE,
      args: [input],
      workflowIdConflictPolicy: "USE_EXISTING",
    }),
  });
  return workflowId;
}

async function floorSettle(client: Client): Promise<void> {
  const workflowId = await floorAccept(client, { waits: true });
  await client.workflow.start<typeof floorDecision>("floorDecision", {
    workflowId: `decision-${randomUUID()}`,
    taskQueue: FLOOR_TASK_QUEUE,
    args: [{ workflowId }],
  });
  await client.workflow.getHandle(workflowId).result();
}

/** What a client does whose call timed out: the same key again; the time counts. */
export async function payUntilAnswered(
  payments: PaymentClient,
  options: Pick<PayOptions, "endsAtReceipt"> = {},
): Promise<PaymentAnswer> {
  const request = aRequest();
  for (;;) {
    try {
      return await payments.pay(request, options);
    } catch (error) {
      if (!(error instanceof DomainError) || error.code !== "outcome_unknown") throw error;
      process.stderr.write(`unknown after ${ACCEPT_DEADLINE_MS} ms, repeated\n`);
    }
  }
}

function aRequest(): Parameters<PaymentClient["pay"]>[0] {
  return { key: randomUUID(), from: "alice", to: "shop", amountMinor: "1", currency: "EUR" };
}

export async function fund(payments: PaymentClient): Promise<void> {
  const answer = await payments.pay({
    ...aRequest(),
    from: "world:EUR",
    to: "alice",
    amountMinor: "100000000",
  });
  await payments.waitForEnd(answer, { timeoutMs: 60_000 });
}

/** Where no run waits for the ledger PostgreSQL alone says that all is booked. */
export async function untilBooked(admin: Pool): Promise<void> {
  const endsAt = Date.now() + BOOKED_MS_MAX;
  while (Date.now() < endsAt) {
    const { rowCount } = await admin.query(
      "SELECT FROM remit.payments WHERE status = 'pending' LIMIT 1",
    );
    if (rowCount === 0) return;
    await delay(10);
  }
  throw new Error(`not everything was booked in ${BOOKED_MS_MAX / 1_000} s`);
}

const BOOKED_MS_MAX = 60_000;

/** A figure counts only if the books are right after it. */
export async function closeTheBooks(url: string): Promise<void> {
  const database = createDatabase({ url, poolMax: 2, applicationName: "remit-bench" });
  const { ok } = await verify(database, { graceSeconds: 60 });
  await database.close();
  if (!ok) throw new Error("remit verify found a broken invariant after the run");
}
