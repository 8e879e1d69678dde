import { execFileSync } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import type { PaymentAnswer } from "../../src/client/payment-client.ts";
import type { PaymentHandle } from "../../src/client/workflow-starts.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { blocksOf } from "../alerts/runbook.ts";
import { expectInvariants, moneyOf } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { testServices } from "../support/services.ts";

/** PostgreSQL goes back in time under Temporal, the queues and the callers, and docs/operations.md is followed. */

jest.setTimeout(300_000);
const flow = useFlow();
const END = { timeoutMs: 30_000 };
const directory = mkdtempSync(join(tmpdir(), "remit-restore-"));
let worker: ChildProcess;

beforeAll(async () => {
  worker = await flow().startWorker();
  await openFundedAccounts(flow());
}, 120_000);

afterAll(() => rmSync(directory, { recursive: true, force: true }));

function handleOf({ paymentId, parameters }: PaymentAnswer): PaymentHandle {
  return { paymentId, ...parameters };
}

async function statusOf({ paymentId }: PaymentAnswer): Promise<string | undefined> {
  return (await getPayment(flow().database.app, paymentId))?.status;
}

async function relay(update: "pause" | "resume"): Promise<void> {
  const id = workflowIds.outboxRelay({ fromShard: 0, toShard: 63 });
  await flow()
    .client.workflow.getHandle(id)
    .executeUpdate(update, { args: [{ reason: "test" }] });
}

function databaseName(): string {
  return new URL(flow().database.url).pathname.slice(1);
}

async function asAdministrator(...statements: string[]): Promise<void> {
  const client = new Client({ connectionString: testServices().REMIT_TEST_ADMIN_DATABASE_URL });
  await client.connect();
  try {
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.end();
  }
}

/** The database of this moment, as a backup would have it. */
async function takeSnapshot(): Promise<void> {
  const name = databaseName();
  await asAdministrator(
    `ALTER DATABASE ${name} ALLOW_CONNECTIONS false`,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`,
    `CREATE DATABASE ${name}_then TEMPLATE ${name}`,
    `ALTER DATABASE ${name} ALLOW_CONNECTIONS true`,
  );
}

async function restoreSnapshot(): Promise<void> {
  const name = databaseName();
  await asAdministrator(
    `DROP DATABASE ${name} WITH (FORCE)`,
    `ALTER DATABASE ${name}_then RENAME TO ${name}`,
    `ALTER DATABASE ${name} ALLOW_CONNECTIONS true`,
  );
}

/** The commands of step 4 as they stand on the page, with the time of the snapshot; answers what they say. */
function deleteRunsThatRemember(time: string): string {
  const page = readFileSync("docs/operations.md", "utf8").split("## Restore to an earlier time")[1];
  const block = blocksOf(page ?? "").find(({ text }) => text.includes("temporal workflow delete"));
  return execFileSync(
    "bash",
    ["--norc", "-euc", `temporal() { "$TEMPORAL" "$@"; }\n${block?.text ?? "exit 1"}`],
    {
      cwd: directory,
      env: {
        PATH: process.env["PATH"],
        HOME: directory,
        T: time,
        TEMPORAL: testServices().REMIT_TEST_TEMPORAL_BINARY,
        TEMPORAL_ADDRESS: testServices().REMIT_TEST_TEMPORAL_ADDRESS,
        TEMPORAL_NAMESPACE: flow().client.options.namespace,
      },
      encoding: "utf8",
    },
  );
}

test("after a restore what was open ends again, what was forgotten is done anew under its key, and no money is doubled", async () => {
  const { payments, database } = flow();
  const authorization = { amount: "40.00", capture: "manual", expires: "1h" } as const;
  const whole = await payments.pay(aRequest(authorization));
  const part = await payments.pay(aRequest(authorization));
  await relay("pause");
  const waiting = await payments.pay(aRequest());
  await takeSnapshot();
  const time = new Date().toISOString();

  await eventually(async () => await relay("resume"));
  await payments.waitForEnd(waiting, END);
  const forgotten = aRequest();
  const first = await payments.pay(forgotten);
  await payments.waitForEnd(first, END);
  const captures = [
    { payment: handleOf(whole), request: { key: randomUUID(), final: true } },
    { payment: handleOf(part), request: { key: randomUUID(), amount: "15.00" } },
  ];
  for (const { payment, request } of captures) {
    const { captureId } = await payments.capture(payment, request);
    await payments.waitForCapture(payment, captureId, END);
  }
  const before = await Promise.all(
    ["alice", "shop"].map(async (id) => await moneyOf(database, id)),
  );

  await flow().kill(worker, "SIGTERM");
  await restoreSnapshot();
  await expectInvariants(database, 0);
  expect(await statusOf(waiting)).toBe("pending");
  expect(await statusOf(first)).toBeUndefined();

  // What the page warns of: Temporal answers for a payment that isn't there.
  worker = await flow().startWorker();
  expect((await payments.pay(forgotten)).paymentId).toBe(first.paymentId);
  expect(await statusOf(first)).toBeUndefined();
  await flow().kill(worker, "SIGTERM");

  await eventually(() => expect(deleteRunsThatRemember(time)).toMatch(/Total: 0$/m), {
    timeoutMs: 60_000,
  });
  worker = await flow().startWorker();
  await eventually(async () => expect(await statusOf(waiting)).toBe("settled"), {
    timeoutMs: 200_000,
  });
  const second = await payments.pay(forgotten);
  expect(second.paymentId).not.toBe(first.paymentId);
  await payments.waitForEnd(second, END);
  for (const { payment, request } of captures) {
    const { captureId } = await payments.capture(payment, request);
    await payments.waitForCapture(payment, captureId, END);
  }
  const after = await Promise.all(["alice", "shop"].map(async (id) => await moneyOf(database, id)));
  expect(after).toEqual(before);
  await eventually(async () => await expectInvariants(database, 0), END);
});
