import { DefaultLogger, Runtime } from "@temporalio/worker";
import type { NamedHistory } from "../support/histories.ts";
import { readRecorded, recordedHistories, replayErrors } from "../support/histories.ts";

jest.setTimeout(90_000);
Runtime.install({ logger: new DefaultLogger("ERROR") });

describe("the histories of each version that was released", () => {
  test.each(recordedHistories())("%s replays on the code as it is", async (file) => {
    expect(await replayErrors([readRecorded(file)])).toEqual([undefined]);
  });

  test("the gate can close: a history that the code would not have made is refused", async () => {
    const refund = readRecorded("0.1.0/refund.json");
    const { events } = refund.history as { events: object[] };
    const [started] = (readRecorded("0.1.0/payment-settled.json").history as { events: object[] })
      .events;
    const mixed = { ...refund, history: { events: [started, ...events.slice(1)] } };
    const [error] = await replayErrors([mixed as NamedHistory]);
    expect(error).toBeDefined();
  });
});
