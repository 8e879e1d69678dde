import { payLines } from "../../src/client/pay-lines.ts";
import type { LineResult } from "../../src/client/pay-lines.ts";
import type { FileLine } from "../../src/client/file-text.ts";
import { DomainError } from "../../src/domain/errors.ts";

const LINES = 50;

async function* lines(): AsyncGenerator<FileLine> {
  for (let line = 2; line < LINES + 2; line += 1) {
    const request = { key: `k${line}`, from: "alice", to: "shop", amount: "1.00", currency: "EUR" };
    yield await Promise.resolve({ line, request });
  }
}

describe("payLines", () => {
  test("when nobody answers, one line waits its time out and the others aren't asked, but each gets its line", async () => {
    const results: LineResult[] = [];
    let asked = 0;
    await payLines({
      lines: lines(),
      client: {
        pay: async () => {
          asked += 1;
          return await Promise.reject(new DomainError("temporal_unreachable", "away"));
        },
        waitForEnd: async () => await Promise.reject(new Error("nothing was accepted")),
      },
      concurrency: 4,
      retryMs: 0,
      onResult: async (result) => {
        results.push(result);
        await Promise.resolve();
      },
    });
    expect(asked).toBeLessThanOrEqual(4);
    expect(results).toHaveLength(LINES);
    const codes = results.map((result) => ("error" in result ? result.error.code : "paid"));
    expect(new Set(codes)).toEqual(new Set(["outcome_unknown"]));
  });
});
