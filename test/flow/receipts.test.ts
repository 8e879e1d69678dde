import { writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAccount, getAccount } from "../../src/database/account-queries.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import { SEARCH_KEYS } from "../../src/workflows/messages.ts";
import { createdMessage, expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import { runRemit } from "../support/remit-command.ts";

/** Payments whose runs end at their receipts: fewer events, and the ledger books them all the same. */

jest.setTimeout(60_000);
const flow = useFlow();
const RECEIPT = { endsAtReceipt: true } as const;

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

async function untilSettled(paymentId: string): Promise<void> {
  await eventually(async () => {
    expect(await getPayment(flow().database.app, paymentId)).toMatchObject({ status: "settled" });
  });
}

async function pauseRelay(): Promise<() => Promise<unknown>> {
  const relay = flow().client.workflow.getHandle(
    workflowIds.outboxRelay({ fromShard: 0, toShard: 63 }),
  );
  await relay.executeUpdate("pause", { args: [{ reason: "to look in between" }] });
  return async () => await relay.executeUpdate("resume", { args: [] });
}

describe("a payment that ends at its receipt", () => {
  test("is settled with 14 events and 2 workflow tasks, its completed run marked as recorded only", async () => {
    const answer = await flow().payments.pay(aRequest(), RECEIPT);
    await untilSettled(answer.paymentId);

    const { messageId } = await createdMessage(flow().database.admin, answer.paymentId);
    const booking = workflowIds.ledgerEntry(messageId);
    const run = flow().client.workflow.getHandle(answer.workflowId);
    const histories = await eventually(async () => {
      const both = [run, flow().client.workflow.getHandle(booking)];
      for (const each of both) expect((await each.describe()).status.name).toBe("COMPLETED");
      return await Promise.all(both.map(async (each) => await each.fetchHistory()));
    });
    const events = histories.flatMap(({ events: all }) => all ?? []);
    const tasks = events.filter((event) => event.workflowTaskCompletedEventAttributes);
    expect([events.length, tasks.length]).toEqual([14, 2]);
    const { typedSearchAttributes } = await run.describe();
    expect(typedSearchAttributes.get(SEARCH_KEYS.status)).toBe("recorded");
    expect(await run.result()).toEqual({
      paymentId: answer.paymentId,
      status: "pending",
      failureCode: null,
    });
  });

  test("can be waited for all the same, by a run that finds its end", async () => {
    const answer = await flow().payments.pay(aRequest(), RECEIPT);

    const end = await flow().payments.waitForEnd(answer, { timeoutMs: 20_000 });

    expect(end).toEqual({ paymentId: answer.paymentId, status: "settled", failureCode: null });
  });

  test("repeated in either way is replayed, and contradicted is refused", async () => {
    const request = aRequest();
    const answer = await flow().payments.pay(request, RECEIPT);

    const again = [await flow().payments.pay(request), await flow().payments.pay(request, RECEIPT)];

    expect(again).toEqual(
      [1, 2].map(
        () => expect.objectContaining({ paymentId: answer.paymentId, replayed: true }) as unknown,
      ),
    );
    const other = flow().payments.pay({ ...request, amount: "13.00" }, RECEIPT);
    await expect(other).rejects.toMatchObject({ code: "idempotency_key_reused" });
    await untilSettled(answer.paymentId);
  });

  test("without funds is refused, and its run says so and not that it was recorded", async () => {
    const request = aRequest({ amount: "999999.00" });
    await expect(flow().payments.pay(request, RECEIPT)).rejects.toMatchObject({
      code: "insufficient_funds",
    });
    const workflowId = workflowIds.payment({ merchant: "default", key: request.key });
    const { typedSearchAttributes } = await flow().client.workflow.getHandle(workflowId).describe();
    expect(typedSearchAttributes.get(SEARCH_KEYS.status)).toBe("refused");
  });

  test("can be cancelled before the ledger has it, though its run has ended", async () => {
    const resume = await pauseRelay();
    const before = await getAccount(flow().database.app, "alice");
    const { paymentId, parameters } = await flow().payments.pay(aRequest(), RECEIPT);

    const cancelled = await flow().payments.cancel({ paymentId, ...parameters });

    await resume();
    expect(cancelled).toMatchObject({ status: "cancelled", changed: true });
    const after = await getAccount(flow().database.app, "alice");
    expect([after?.heldMinor, after?.postedMinor]).toEqual([
      before?.heldMinor,
      before?.postedMinor,
    ]);
  });

  test("gets a run again from the supervisor where it is late", async () => {
    const resume = await pauseRelay();
    const { paymentId, workflowId } = await flow().payments.pay(aRequest(), RECEIPT);
    await flow().database.admin(
      `SET session_replication_role = replica;
       UPDATE remit.payments SET created_at = now() - interval '1 hour', updated_at = now() - interval '1 hour' WHERE id = '${paymentId}';
       SET session_replication_role = origin`,
    );
    await flow().client.workflow.execute("supervisor", {
      workflowId: "supervise-now",
      taskQueue: "payments",
      args: [],
    });

    const run = flow().client.workflow.getHandle(workflowId);
    await eventually(async () => {
      const { status, typedSearchAttributes } = await run.describe();
      expect([status.name, typedSearchAttributes.get(SEARCH_KEYS.status)]).toEqual([
        "RUNNING",
        "overdue",
      ]);
    });
    await resume();
    expect(await run.result()).toMatchObject({ paymentId, status: "settled" });
  });

  test("with manual capture is a mistake of the caller's: nothing would let it expire", async () => {
    const request = aRequest({ capture: "manual" });
    await expect(flow().payments.pay(request, RECEIPT)).rejects.toMatchObject({ code: "usage" });
  });
});

describe("remit pay --end-at-receipt", () => {
  const words = ["pay", "--from", "alice", "--to", "shop", "--amount", "1.00", "--currency", "EUR"];

  test("answers with the receipt", async () => {
    const ran = await runRemit(flow(), [...words, "--key", "r1", "--end-at-receipt", "--json"]);
    expect(ran.exit).toBe(0);
    const { paymentId } = JSON.parse(ran.out) as { paymentId: string };
    await untilSettled(paymentId);
  });

  test("can't be waited for in the same breath, nor authorize", async () => {
    const refused = await Promise.all(
      [["--wait"], ["--capture", "manual"]].map(
        async (more) =>
          await runRemit(flow(), [...words, "--key", "r2", "--end-at-receipt", ...more]),
      ),
    );
    expect(refused.map(({ exit }) => exit)).toEqual([2, 2]);
    const rows = await flow().database.admin(
      "SELECT FROM remit.payments WHERE idempotency_key = 'r2'",
    );
    expect(rows).toEqual([]);
  });

  test("of a file waits only for what another of its lines spends", async () => {
    const { app } = flow().database;
    const account = { currency: "EUR", kind: "customer", overdraftMinor: 0n } as const;
    await createAccount(app, { ...account, accountId: "through" });
    const dir = mkdtempSync(join(tmpdir(), "remit-receipts-"));
    const file = join(dir, "payments.csv");
    const lines = [
      "f1,world:EUR,through,5.00,EUR",
      "f2,through,shop,5.00,EUR",
      "f3,alice,shop,1.00,EUR",
    ];
    writeFileSync(file, `key,from,to,amount,currency\n${lines.join("\n")}\n`);

    const ran = await runRemit(flow(), ["pay", "--file", file, "--end-at-receipt", "--json"]);

    rmSync(dir, { recursive: true });
    const answers = ran.out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Answer);
    expect({ exit: ran.exit, err: ran.err }).toMatchObject({ exit: 0 });
    const runs = await Promise.all(
      answers.map(async ({ idempotencyKey, workflowId, paymentId }) => {
        await untilSettled(paymentId);
        const { typedSearchAttributes } = await flow()
          .client.workflow.getHandle(workflowId)
          .describe();
        return [idempotencyKey, typedSearchAttributes.get(SEARCH_KEYS.status)];
      }),
    );
    expect(Object.fromEntries(runs)).toEqual({ f1: undefined, f2: "recorded", f3: "recorded" });
  });
});

interface Answer {
  readonly idempotencyKey: string;
  readonly workflowId: string;
  readonly paymentId: string;
}
