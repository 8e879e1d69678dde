import type { PaymentAnswer } from "../../src/client/payment-client.ts";
import { documentOfAnswer } from "../../src/client/payment-document.ts";
import type { CaptureMode, PaymentStatus } from "../../src/domain/payment.ts";

function answer(of: {
  capture: CaptureMode;
  status: PaymentStatus;
  replayed: boolean;
}): PaymentAnswer {
  const { capture, ...more } = of;
  return {
    paymentId: "p",
    requestId: "r",
    createdAt: "2026-12-03T00:00:00Z",
    workflowId: "w",
    workflowUrl: null,
    parameters: {
      merchant: "default",
      idempotencyKey: "k",
      source: "a",
      destination: "b",
      amountMinor: "10000",
      currency: "EUR",
      capture,
      description: null,
    },
    ...more,
  };
}

describe("a payment of which Temporal alone was asked", () => {
  test.each([
    ["automatic", "pending", false, "0", "0"],
    ["automatic", "settled", false, "10000", "0"],
    ["automatic", "settled", true, "10000", null],
    ["manual", "authorized", false, "0", "0"],
    ["manual", "authorized", true, null, null],
    ["manual", "settled", false, null, null],
  ] as const)(
    "%s and %s, replayed: %s, says what is captured (%s) and refunded (%s), and nothing that it can't know",
    (capture, status, replayed, capturedMinor, refundedMinor) => {
      const document = documentOfAnswer(answer({ capture, status, replayed }));
      expect(document).toMatchObject({
        capturedMinor,
        captured: capturedMinor === null ? null : (Number(capturedMinor) / 100).toFixed(2),
        refundedMinor,
      });
    },
  );
});
