import { createMetrics } from "../../src/observability/metrics.ts";
import { meteredLedger } from "../../src/worker/metered-activities.ts";

const END = {
  outcome: "booked",
  repeated: false,
  paymentId: null,
  transactionId: null,
  error: null,
} as const;

/** It is counted after the commit: an error here would have the activity tried again for ever. */
test.each(["null", "[]", "7", '"text"', "{}", '{"time": 7}', '{"time": "soon"}'])(
  "counting a booking never fails, whatever its message says: %s",
  async (payload) => {
    const metrics = createMetrics();
    const ledger = meteredLedger(metrics, {
      applyLedgerEntries: async () => await Promise.resolve(END),
    });
    const input = { messageId: "m", type: "payment.created", payload };
    expect(await ledger.applyLedgerEntries(input)).toEqual(END);
    const { values } = await metrics.bookings.get();
    expect(values).toContainEqual({ labels: { outcome: "booked" }, value: 1 });
  },
);
