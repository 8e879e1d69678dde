import fc from "fast-check";
import type { Status } from "./money-model.ts";

/** Steps that money can take in either world; the numbers pick among what is there by then. */
export type MoneyStep =
  | { do: "pay"; from: number; to: number; amount: number; isManual: boolean }
  | { do: "capture"; which: number; amount: number | null; final: boolean }
  | { do: "refund"; which: number; amount: number | null }
  | { do: "status"; account: number; status: Status };

/** Printed by both tests, so that a failure can be played again. */
export const SEED = Number(process.env["REMIT_MODEL_SEED"] ?? Date.now() % 2_147_483_647);

export const index = fc.nat({ max: 5 });
const part = fc.option(fc.integer({ min: 1, max: 5_000 }), { nil: null });

export const pay = {
  weight: 5,
  arbitrary: fc.record({
    do: fc.constant("pay" as const),
    from: index,
    to: index,
    amount: fc.integer({ min: 1, max: 7_000 }),
    isManual: fc.boolean(),
  }),
};
export const capture = {
  weight: 4,
  arbitrary: fc.record({
    do: fc.constant("capture" as const),
    which: index,
    amount: part,
    final: fc.boolean(),
  }),
};
export const refund = {
  weight: 3,
  arbitrary: fc.record({ do: fc.constant("refund" as const), which: index, amount: part }),
};
export const status = {
  weight: 2,
  arbitrary: fc.record({
    do: fc.constant("status" as const),
    account: index,
    status: fc.constantFrom<Status>("active", "frozen", "closed", "active"),
  }),
};
