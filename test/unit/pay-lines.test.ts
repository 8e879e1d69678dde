import { setTimeout as sleep } from "node:timers/promises";
import type { FileLine } from "../../src/client/file-text.ts";
import { parsePaymentRequest } from "../../src/client/parameters.ts";
import type { PaymentRequest } from "../../src/client/parameters.ts";
import { payLines } from "../../src/client/pay-lines.ts";
import type { LineResult, PayLinesInput } from "../../src/client/pay-lines.ts";
import type { PaymentAnswer } from "../../src/client/payment-client.ts";
import { DomainError } from "../../src/domain/errors.ts";

interface Behaviour {
  readonly onPay?: (key: string) => Promise<void>;
  readonly onWait?: (key: string) => Promise<void>;
}

/** A client that notes what it is asked, in order. */
function fakeClient({ onPay, onWait }: Behaviour = {}) {
  const log: string[] = [];
  const requestIds = new Map<string, Set<string | undefined>>();
  const client: PayLinesInput["client"] = {
    async pay(request, options) {
      const { key } = request;
      log.push(`pay ${key}`);
      requestIds.set(key, (requestIds.get(key) ?? new Set()).add(options?.requestId));
      await onPay?.(key);
      log.push(`recorded ${key}`);
      return answerOf(request);
    },
    async waitForEnd({ parameters }) {
      await onWait?.(parameters.idempotencyKey);
      log.push(`ended ${parameters.idempotencyKey}`);
      return { paymentId: "p", status: "settled", failureCode: null };
    },
  };
  return { client, log, requestIds };
}

function answerOf(request: PaymentRequest): PaymentAnswer {
  return {
    paymentId: "p",
    requestId: "r",
    replayed: false,
    status: "pending",
    createdAt: "2026-01-01T00:00:00Z",
    workflowId: "w",
    workflowUrl: null,
    parameters: parsePaymentRequest(request),
  };
}

async function* linesOf(rows: readonly string[]): AsyncGenerator<FileLine> {
  for (const [index, row] of rows.entries()) {
    const [key, from, to, amount = "1.00"] = row.split(" ");
    yield await Promise.resolve({
      line: index + 1,
      request: { key, from, to, amount, currency: "EUR" },
    });
  }
}

async function pay(
  rows: readonly string[],
  input: Pick<PayLinesInput, "client"> & Partial<PayLinesInput>,
): Promise<LineResult[]> {
  const results: LineResult[] = [];
  await payLines({
    lines: linesOf(rows),
    concurrency: 12,
    onResult: async (result) => {
      results.push(result);
      await Promise.resolve();
    },
    ...input,
  });
  return results;
}

/** Longer for earlier keys, so that any order that isn't enforced comes out wrong. */
async function slowestFirst(key: string): Promise<void> {
  await sleep(40 - 10 * Number(key.slice(1)));
}

describe("payLines", () => {
  test("records lines that share an account in the order of the file", async () => {
    const { client, log } = fakeClient({ onPay: slowestFirst });
    await pay(["k0 a shop", "k1 b shop", "k2 b c"], { client });
    expect(log.filter((entry) => entry.startsWith("recorded"))).toEqual([
      "recorded k0",
      "recorded k1",
      "recorded k2",
    ]);
  });

  test("records lines that share a key in the order of the file", async () => {
    const { client, log } = fakeClient({ onPay: slowestFirst, onWait: slowestFirst });
    await pay(["k0 a b", "k0 c d 2.00"], { client });
    expect(log.slice(0, 3)).toEqual(["pay k0", "recorded k0", "pay k0"]);
  });

  test("asks for lines that share nothing at the same time", async () => {
    const { client, log } = fakeClient({ onPay: slowestFirst });
    await pay(["k0 a b", "k1 c d", "k2 e f"], { client });
    expect(log.slice(0, 3)).toEqual(["pay k0", "pay k1", "pay k2"]);
  });

  test("holds nobody up for an earlier end, except who spends what it brings", async () => {
    const { client, log } = fakeClient({ onWait: slowestFirst });
    await pay(["k0 world:EUR alice", "k1 bob alice", "k2 alice shop"], { client });
    expect(log.indexOf("pay k1")).toBeLessThan(log.indexOf("ended k0"));
    expect(log.indexOf("pay k2")).toBeGreaterThan(log.indexOf("ended k0"));
    expect(log.indexOf("pay k2")).toBeGreaterThan(log.indexOf("ended k1"));
  });

  test("waits for no line that may end at its receipt", async () => {
    const { client, log } = fakeClient({});
    const endsAtReceipt: PayLinesInput["endsAtReceipt"] = ({ destination }) =>
      destination === "shop";
    const results = await pay(["k0 world:EUR alice", "k1 bob shop"], { client, endsAtReceipt });
    expect(log.filter((entry) => entry.startsWith("ended"))).toEqual(["ended k0"]);
    const ends = results.map((result) => ("end" in result ? result.end.status : "none"));
    expect(ends.toSorted()).toEqual(["pending", "settled"]);
  });

  test("never has more lines under way than it may", async () => {
    let running = 0;
    let most = 0;
    const { client } = fakeClient({
      onPay: async () => {
        running++;
        most = Math.max(most, running);
        await sleep(1);
      },
      onWait: async () => {
        await sleep(1);
        running--;
      },
    });
    const rows = Array.from({ length: 60 }, (_row, index) => `k${index} a${index} b${index}`);
    await pay(rows, { client, concurrency: 3 });
    expect(most).toBe(3);
  });

  test("reads only so far ahead of a line that blocks all others", async () => {
    const opened = Promise.withResolvers<void>();
    const { client } = fakeClient({ onPay: async () => await opened.promise });
    let read = 0;
    async function* rows(): AsyncGenerator<FileLine> {
      for await (const line of linesOf(Array.from({ length: 1_000 }, (_r, i) => `k${i} a b`))) {
        read++;
        yield line;
      }
    }
    const paying = pay([], { client, lines: rows(), concurrency: 2 });
    await sleep(30);
    expect(read).toBeLessThan(40);
    opened.resolve();
    expect(await paying).toHaveLength(1_000);
  });

  test("asks again with the same request id until there is an answer", async () => {
    let attempts = 0;
    const { client, requestIds } = fakeClient({
      onPay: async () => {
        attempts++;
        await Promise.resolve();
        if (attempts === 1) throw new DomainError("temporal_unreachable", "away");
        if (attempts === 2) throw new DomainError("outcome_unknown", "silence");
      },
    });
    const [result] = await pay(["k0 a b"], { client });
    expect(result).toMatchObject({ end: { status: "settled" } });
    expect([attempts, requestIds.get("k0")?.size]).toEqual([3, 1]);
  });

  test("says that the outcome is unknown where nobody answers in time", async () => {
    const { client } = fakeClient({
      onPay: async () => await Promise.reject(new DomainError("temporal_unreachable", "away")),
    });
    const [result] = await pay(["k0 a b"], { client, retryMs: 1 });
    expect(result).toMatchObject({ answer: null, error: { code: "outcome_unknown" } });
  });

  test("gives a refused line its error and lets the next ones go on", async () => {
    const { client } = fakeClient({
      onPay: async (key) => {
        await Promise.resolve();
        if (key === "k0") throw new DomainError("insufficient_funds", "too little");
      },
    });
    const results = await pay(["k0 a b", "k1 a b", "k2 a a"], { client });
    const outcomes = results
      .toSorted((first, second) => first.line.line - second.line.line)
      .map((result) => ("error" in result ? result.error.code : result.end.status));
    expect(outcomes).toEqual(["insufficient_funds", "settled", "same_account"]);
  });

  test("lets the lines that are under way end where the next one can't be read", async () => {
    const { client, log } = fakeClient({ onWait: slowestFirst });
    const lines = async function* (): AsyncGenerator<FileLine> {
      yield* linesOf(["k0 a b", "k1 c d"]);
      throw new DomainError("outcome_unknown", "the file was changed");
    };
    await expect(pay([], { client, lines: lines() })).rejects.toMatchObject({
      code: "outcome_unknown",
    });
    expect(log.filter((entry) => entry.startsWith("ended"))).toHaveLength(2);
  });

  test("stops at a result that can't be reported", async () => {
    const { client, log } = fakeClient();
    const rows = Array.from({ length: 1_000 }, (_row, index) => `k${index} a b`);
    const onResult = async (): Promise<void> => await Promise.reject(new Error("EPIPE"));
    await expect(pay(rows, { client, onResult, concurrency: 1 })).rejects.toThrow("EPIPE");
    expect(log.length).toBeLessThan(300);
  });
});
