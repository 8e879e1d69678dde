import { DefaultLogger, Runtime } from "@temporalio/worker";
import { listReconciliations } from "../../src/database/reconciliation-queries.ts";
import { scheduleIds } from "../../src/domain/ids.ts";
import { eventually } from "../support/eventually.ts";
import { openFundedAccounts, useFlow } from "../support/flow.ts";
import { runRemit } from "../support/remit-command.ts";

jest.setTimeout(90_000);
Runtime.install({ logger: new DefaultLogger("ERROR") });
const flow = useFlow();

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
});

async function documentOf(
  words: readonly string[],
  exit: number,
): Promise<Record<string, unknown> & { findings: { findingId: string; what: string }[] }> {
  const ran = await runRemit(flow(), ["reconciliation", ...words, "--json"]);
  expect([ran.exit, ran.err]).toEqual([exit, ""]);
  return JSON.parse(ran.out) as Awaited<ReturnType<typeof documentOf>>;
}

async function drift(minor: number): Promise<void> {
  await flow().database.admin(
    `SET session_replication_role = replica; UPDATE remit.accounts SET posted = posted + ${minor} WHERE id = 'shop'; SET session_replication_role = origin`,
  );
}

describe("reconciliation", () => {
  test.each([
    ["recent", scheduleIds.reconciliationRecent],
    ["full", scheduleIds.reconciliationFull],
  ])("%s runs by its Schedule, and what it found is kept", async (scope, scheduleId) => {
    await eventually(async () => await flow().client.schedule.getHandle(scheduleId).trigger());
    await eventually(async () => {
      const looks = await listReconciliations(flow().database.app, { limit: 100 });
      expect(looks.find((look) => look.scope === scope)).toMatchObject({ ok: true });
    });
  });

  test("by command: a break is found, acknowledged with a reason, mended, and over", async () => {
    expect(await documentOf(["run"], 0)).toMatchObject({ ok: true, unacknowledged: 0 });
    await drift(1);
    expect(await documentOf(["run"], 6)).toMatchObject({ ok: false });
    const { findings } = await documentOf(["findings"], 0);
    expect(findings.map(({ what }) => what)).toContainEqual(
      expect.stringContaining("account shop"),
    );
    const ids = findings.map(({ findingId }) => findingId);
    expect(await documentOf(["acknowledge", ...ids], 2)).toMatchObject({ code: "usage" });
    await documentOf(["acknowledge", ...ids, "--reason", "planted by a test"], 0);
    expect(await documentOf(["acknowledge", ...ids, "--reason", "again"], 4)).toMatchObject({
      code: "finding_not_acknowledgeable",
    });
    expect(await documentOf(["run", "--scope", "recent"], 0)).toMatchObject({ ok: false });
    await drift(-1);
    expect(await documentOf(["run"], 0)).toMatchObject({ ok: true });
    expect(await documentOf(["findings"], 0)).toEqual({ findings: [] });
    const { out } = await runRemit(flow(), ["reconciliation", "list", "--limit", "3"]);
    expect(
      out
        .split("\n")
        .slice(0, 3)
        .map((line) => line.split("  ")[1]?.trim()),
    ).toEqual(["full", "recent", "full"]);
  });
});
