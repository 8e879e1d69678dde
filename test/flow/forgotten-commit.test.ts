import type { ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSupervisorActivities } from "../../src/activities/supervise.ts";
import type { PaymentRequest } from "../../src/client/parameters.ts";
import type { PaymentAnswer } from "../../src/client/payment-client.ts";
import { runPaymentsFile } from "../../src/client/run-payments-file.ts";
import { refreshDocument } from "../../src/cli/payment-view.ts";
import { loadSettings } from "../../src/config/settings.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { scheduleIds, workflowIds } from "../../src/domain/ids.ts";
import { createTemporalStarts } from "../../src/worker/temporal-starts.ts";
import {
  ledgerDecisionSignal,
  relayPauseUpdate,
  relayResumeUpdate,
} from "../../src/workflows/messages.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { runRemit } from "../support/remit-command.ts";
import { restoreSnapshot, takeSnapshot } from "../support/snapshot.ts";

/** A failover without synchronous replication forgets commits that were answered; Temporal still has the request. */
jest.setTimeout(120_000);
const flow = useFlow();
const directory = mkdtempSync(join(tmpdir(), "remit-forgotten-"));
let worker: ChildProcess;

afterAll(() => rmSync(directory, { recursive: true, force: true }));

beforeAll(async () => {
  worker = await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);

/** As if the payment's transaction had never been. */
async function forget(paymentId: string, key: string): Promise<void> {
  await flow().database.admin(
    `SET session_replication_role = replica;
     UPDATE remit.accounts SET held = held - (SELECT sum(remaining) FROM remit.holds WHERE payment_id = '${paymentId}')
      WHERE id = (SELECT account_id FROM remit.holds WHERE payment_id = '${paymentId}');
     DELETE FROM remit.outbox WHERE aggregate_id = '${paymentId}';
     DELETE FROM remit.outbox_heads WHERE aggregate_id = '${paymentId}';
     DELETE FROM remit.holds WHERE payment_id = '${paymentId}';
     DELETE FROM remit.payments WHERE id = '${paymentId}';
     DELETE FROM remit.idempotency_keys WHERE key = '${key}';
     SET session_replication_role = origin`,
  );
}

test("a payment that PostgreSQL has forgotten is recorded again by whoever waits for it, and paid once", async () => {
  const { client, payments, database } = flow();
  const range = { fromShard: 0, toShard: 63 };
  const relay = client.workflow.getHandle(workflowIds.outboxRelay(range));
  await relay.executeUpdate(relayPauseUpdate, { args: [{ reason: "a failover is played" }] });
  const request = aRequest();
  const answer = await payments.pay(request);
  await forget(answer.paymentId, request.key);
  await expectInvariants(database);
  // What the supervisor sends to a run whose key isn't recorded.
  const run = client.workflow.getHandle(answer.workflowId);
  const look = { status: "failed", failureCode: null, messageId: null } as const;
  await run.signal(ledgerDecisionSignal, look);
  await eventually(async () => expect((await run.describe()).status.name).toBe("FAILED"));
  await relay.executeUpdate(relayResumeUpdate);
  const end = await payments.waitForEnd(answer, { timeoutMs: 20_000 });
  expect(end).toMatchObject({ paymentId: answer.paymentId, status: "settled" });
  await expectInvariants(database);
}, 60_000);

interface Forgotten {
  readonly request: PaymentRequest;
  readonly answer: PaymentAnswer;
}

type Capture = "automatic" | "manual";

/** A payment that was answered for and that PostgreSQL doesn't have any more; its event never went out. */
async function forgottenPayment(capture: Capture): Promise<Forgotten> {
  await relay("pause");
  const request = aRequest(capture === "manual" ? { capture, expires: "1h" } : {});
  const answer = await flow().payments.pay(request);
  await untilWaiting(answer);
  await forget(answer.paymentId, request.key);
  await relay("resume");
  return { request, answer };
}

/** A manual payment's run reads once more after its receipt, and would find out by itself. */
async function untilWaiting({ workflowId }: PaymentAnswer): Promise<void> {
  const run = flow().client.workflow.getHandle(workflowId);
  await eventually(async () => {
    const said = await run.query<{ currentDetails?: string }>("__temporal_workflow_metadata");
    expect(said.currentDetails).toMatch(/Authorized|Recorded/);
  });
}

async function relay(update: "pause" | "resume"): Promise<void> {
  const id = workflowIds.outboxRelay({ fromShard: 0, toShard: 63 });
  const run = flow().client.workflow.getHandle(id);
  await eventually(
    async () => await run.executeUpdate(update, { args: [{ reason: "a failover is played" }] }),
  );
}

async function failRun({ answer }: Forgotten): Promise<void> {
  const run = flow().client.workflow.getHandle(answer.workflowId);
  await run.signal(ledgerDecisionSignal, LOOK);
  await untilFailed(answer);
}

const LOOK = { status: "failed", failureCode: null, messageId: null } as const;

async function untilFailed({ workflowId }: PaymentAnswer): Promise<void> {
  const run = flow().client.workflow.getHandle(workflowId);
  await eventually(async () => expect((await run.describe()).status.name).toBe("FAILED"), {
    timeoutMs: 20_000,
  });
}

const FORMS = {
  pay: wordsOf,
  "pay --wait": (request) => [...wordsOf(request), "--wait"],
  "pay --file": fileOf,
} satisfies Record<string, (request: PaymentRequest) => string[]>;

function wordsOf(request: PaymentRequest): string[] {
  const { from, to, amount = "", currency, key, capture, expires } = request;
  const words = ["--from", from, "--to", to, "--amount", amount, "--currency", currency];
  const later = capture === "manual" ? ["--capture", capture, "--expires", expires ?? ""] : [];
  return ["pay", ...words, "--key", key, ...later, "--json"];
}

function fileOf(request: PaymentRequest): string[] {
  const path = join(directory, `${request.key}.jsonl`);
  writeFileSync(path, `${JSON.stringify(request)}\n`);
  return ["pay", "--file", path, "--json"];
}

/** There once, under the id that its caller was told, and on its way. */
async function expectRecordedOnce({ request, answer }: Forgotten): Promise<void> {
  const { database } = flow();
  const { paymentId } = answer;
  const isManual = request.capture === "manual";
  await eventually(
    async () =>
      expect(await getPayment(database.app, paymentId)).toMatchObject({
        status: isManual ? "authorized" : "settled",
        idempotencyKey: request.key,
      }),
    { timeoutMs: 30_000 },
  );
  const { rows } = await database.app.pool.query(
    "SELECT count(*)::int AS count FROM remit.payments WHERE idempotency_key = $1",
    [request.key],
  );
  expect(rows).toEqual([{ count: 1 }]);
  await expectInvariants(database);
}

describe.each(["automatic", "manual"] as const)("a forgotten %s payment", (capture) => {
  const forms = Object.entries(FORMS);

  test.each(forms)("whose run still waits is recorded again by remit %s", async (_name, words) => {
    const forgotten = await forgottenPayment(capture);
    const { exit, out } = await runRemit(flow(), words(forgotten.request));
    expect({ exit, out: JSON.parse(out) as unknown }).toMatchObject({
      exit: 0,
      out: { paymentId: forgotten.answer.paymentId, replayed: false },
    });
    await expectRecordedOnce(forgotten);
  });

  test.each(forms)("whose run has failed is recorded again by remit %s", async (_name, words) => {
    const forgotten = await forgottenPayment(capture);
    await failRun(forgotten);
    const { exit, out } = await runRemit(flow(), words(forgotten.request));
    expect({ exit, out: JSON.parse(out) as unknown }).toMatchObject({
      exit: 0,
      out: { paymentId: forgotten.answer.paymentId, replayed: false },
    });
    await expectRecordedOnce(forgotten);
    // The new run's answer is the key's from now on.
    const again = await runRemit(flow(), words(forgotten.request));
    expect({ exit: again.exit, out: JSON.parse(again.out) as unknown }).toMatchObject({
      exit: 0,
      out: { paymentId: forgotten.answer.paymentId, replayed: true },
    });
  });

  test("is refused where the money is gone meanwhile, and not told as paid", async () => {
    const forgotten = await forgottenPayment(capture);
    await flow().database.admin("UPDATE remit.accounts SET status = 'frozen' WHERE id = 'alice'");
    const { exit, out } = await runRemit(flow(), wordsOf(forgotten.request));
    await flow().database.admin("UPDATE remit.accounts SET status = 'active' WHERE id = 'alice'");
    expect({ exit, out: JSON.parse(out) as unknown }).toMatchObject({
      exit: 4,
      out: { code: "account_frozen" },
    });
    expect(await getPayment(flow().database.app, forgotten.answer.paymentId)).toBeNull();
  });

  test("is no success without a worker, and recorded by the same words with one", async () => {
    const forgotten = await forgottenPayment(capture);
    await flow().kill(worker);
    const { paymentId } = forgotten.answer;
    const said = `Temporal answers for payment ${paymentId}, which PostgreSQL doesn't have`;
    const words = wordsOf(forgotten.request);
    const commands = [words.slice(0, -1), [...words.slice(0, -1), "--wait"]];
    const runs = commands.map(async (command) => await runRemit(flow(), command));
    for (const { exit, out, err } of await Promise.all(runs)) {
      expect({ exit, out }).toEqual({ exit: 7, out: "" });
      expect(err).toContain(said);
      expect(err).toContain("fix: repeat with the same key: it can't pay twice");
    }
    worker = await flow().startWorker();
    expect((await runRemit(flow(), words)).exit).toBe(0);
    await expectRecordedOnce(forgotten);
  });
});

test("a file's line of a forgotten payment is without an answer while there is no worker, and paid when it runs again", async () => {
  const forgotten = await forgottenPayment("automatic");
  await flow().kill(worker);
  const words = fileOf(forgotten.request);
  const { exit, out, err } = await runRemit(flow(), words);
  const { paymentId } = forgotten.answer;
  expect({ exit, out: JSON.parse(out) as unknown }).toMatchObject({
    exit: 7,
    out: {
      line: 1,
      idempotencyKey: forgotten.request.key,
      error: { code: "outcome_unknown", paymentId },
    },
  });
  expect(JSON.parse(out)).not.toHaveProperty("status");
  expect(err).toMatch(/^1 payments in .* 1 without an answer$/m);
  worker = await flow().startWorker();
  expect((await runRemit(flow(), words)).exit).toBe(0);
  await expectRecordedOnce(forgotten);
}, 180_000);

test("what is forgotten while a file runs is its line's error, and the other lines are told", async () => {
  const { database, env, payments } = flow();
  const [kept, lost] = [
    aRequest({ capture: "manual", expires: "1h" }),
    aRequest({ capture: "manual", expires: "1h" }),
  ];
  await payments.pay(kept);
  const { paymentId } = await payments.pay(lost);
  await forget(paymentId, lost.key);
  const path = join(directory, `${lost.key}.jsonl`);
  writeFileSync(path, `${JSON.stringify(lost)}\n${JSON.stringify(kept)}\n`);
  const lines: { line: number }[] = [];
  const exit = await runPaymentsFile({
    path,
    settings: loadSettings({ env, cwd: "/absent" }),
    isJson: true,
    output: {
      out: (line) => lines.push(JSON.parse(line) as { line: number }),
      err: () => undefined,
    },
    books: {
      // As it was when the line was asked.
      isRecorded: async () => await Promise.resolve(true),
      refresh: async (document) => await refreshDocument(database.app, document),
    },
  });
  expect(exit).toBe(7);
  // Each line is told when it is done.
  expect(lines.sort((one, other) => one.line - other.line)).toMatchObject([
    { line: 1, error: { code: "outcome_unknown", paymentId } },
    { line: 2, status: "authorized", replayed: true },
  ]);
});

describe("the supervisor", () => {
  test("finds the forgotten run among authorizations that wait, a page at a time, and it alone fails", async () => {
    const { client, database, payments } = flow();
    const authorization = { amount: "1.00", capture: "manual", expires: "1h" } as const;
    const waiting: PaymentAnswer[] = [];
    for (let count = 0; count < 3; count += 1)
      waiting.push(await payments.pay(aRequest(authorization)));
    const forgotten = await forgottenPayment("manual");
    for (let count = 0; count < 3; count += 1)
      waiting.push(await payments.pay(aRequest(authorization)));
    const starts = createTemporalStarts(client);
    const pages: number[] = [];
    const told = new Set<string>();
    const { startMissing } = createSupervisorActivities({
      ...starts,
      startLedgerEntry: starts.startLedgerEntryAgain,
      startRelays: async () => await Promise.resolve(1),
      database: database.app,
      signalDecision: async (workflowId, decision) => {
        told.add(workflowId);
        await starts.signalDecision(workflowId, decision);
      },
      // The young ones, too, and few at a time.
      manualRuns: async ({ startedBefore }) => {
        const isFirst = pages.length === 0;
        const page = await starts.manualRuns({
          startedBefore: isFirst ? new Date(Date.now() + 1_000) : startedBefore,
          limit: 2,
        });
        pages.push(page.payments.length);
        return page;
      },
    });
    const ids = [...waiting, forgotten.answer].map(({ workflowId }) => workflowId);
    await eventually(async () => {
      const runs = await client.workflow.count(
        `ExecutionStatus = 'Running' AND WorkflowId IN (${ids.map((id) => `'${id}'`).join(", ")})`,
      );
      expect(runs.count).toBe(ids.length);
    });
    let manualRunsBefore: string | null = null;
    do {
      const input: { manualRunsBefore?: string } =
        manualRunsBefore === null ? {} : { manualRunsBefore };
      const summary = await startMissing(input);
      expect(summary.failed).toBe(0);
      ({ manualRunsBefore } = summary);
    } while (manualRunsBefore !== null && pages.length < 50);
    expect(manualRunsBefore).toBeNull();
    expect(ids.filter((id) => told.has(id))).toEqual([forgotten.answer.workflowId]);
    expect(pages.length).toBeGreaterThan(3);
    await untilFailed(forgotten.answer);
    for (const { workflowId } of waiting) {
      const { status } = await client.workflow.getHandle(workflowId).describe();
      expect(status.name).toBe("RUNNING");
    }
  });
});

describe("a capture, void or refund that PostgreSQL has forgotten", () => {
  test("is no success under its key, and done by a new one", async () => {
    const { client, payments, database } = flow();
    // It would give the voided payment a new run, which knows nothing of the old answer.
    await client.schedule.getHandle(scheduleIds.supervisor).pause();
    const authorization = { amount: "20.00", capture: "manual", expires: "1h" } as const;
    const [captured, voided, paid] = [
      await payments.pay(aRequest(authorization)),
      await payments.pay(aRequest(authorization)),
      await payments.pay(aRequest({ amount: "20.00" })),
    ];
    await payments.waitForEnd(paid, { timeoutMs: 20_000 });
    const commands = [
      ["capture", captured],
      ["void", voided],
      ["refund", paid],
    ] as const;
    await takeSnapshot(database);
    await eventually(async () => await getPayment(database.app, paid.paymentId));
    for (const [name, { paymentId }] of commands) {
      const words = ["payment", name, paymentId, "--key", `${name}-1`, "--wait"];
      expect(await runRemit(flow(), words)).toMatchObject({ exit: 0 });
    }
    await restoreSnapshot(database);
    await eventually(async () => await getPayment(database.app, paid.paymentId));
    for (const [name, { paymentId }] of commands) {
      for (const wait of [[], ["--wait"]]) {
        const words = ["payment", name, paymentId, "--key", `${name}-1`, ...wait];
        const repeated = await runRemit(flow(), words);
        expect(repeated).toMatchObject({ exit: 7, out: "" });
        expect(repeated.err).toContain("which PostgreSQL doesn't have");
        expect(repeated.err).toContain("fix: do it with a new key");
      }
      const anew = ["payment", name, paymentId, "--key", `${name}-2`, "--wait"];
      expect(await runRemit(flow(), anew)).toMatchObject({ exit: 0 });
    }
    expect(await getPayment(database.app, captured.paymentId)).toMatchObject({
      status: "settled",
      capturedMinor: 2_000n,
    });
    expect(await getPayment(database.app, voided.paymentId)).toMatchObject({ status: "voided" });
    expect(await getPayment(database.app, paid.paymentId)).toMatchObject({ refundedMinor: 2_000n });
    await expectInvariants(database);
  });
});
