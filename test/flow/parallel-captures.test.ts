import { randomUUID } from "node:crypto";
import { getPayment } from "../../src/database/payment-queries.ts";
import type { DomainError } from "../../src/domain/errors.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

const flow = useFlow();

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

describe("fifty captures of one authorization at once, each under a key of its own", () => {
  test.each([1, 2, 3])(
    "are each answered, and the run lives: it captures, and ends by a void (round %i)",
    async () => {
      const { payments, database } = flow();
      const request = { ...aRequest({ amount: "60.00" }), capture: "manual" as const };
      const { paymentId } = await payments.pay(request);
      const handle = {
        paymentId,
        merchant: "default",
        idempotencyKey: request.key,
        currency: "EUR",
        capture: "manual" as const,
      };
      const answers = await Promise.allSettled(
        Array.from(
          { length: 50 },
          async () => await payments.capture(handle, { key: randomUUID(), amountMinor: "1" }),
        ),
      );
      const refusals = answers.flatMap((answer) =>
        answer.status === "rejected" ? [(answer.reason as DomainError).code] : [],
      );
      expect(refusals.length).toBeLessThan(50);
      // Temporal takes ten updates of a run at a time; who waited too long repeats with the same key.
      expect(
        refusals.filter((code) => code !== "capture_in_progress" && code !== "outcome_unknown"),
      ).toEqual([]);
      await eventually(async () => {
        await payments.void(handle, { key: `void-${paymentId}` });
      });
      await eventually(async () =>
        expect((await getPayment(database.app, paymentId))?.status).toBe("settled"),
      );
    },
    90_000,
  );
});
