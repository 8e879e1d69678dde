import { getPayment } from "../../src/database/payment-queries.ts";
import { workflowIds } from "../../src/domain/ids.ts";
import {
  relayPauseUpdate,
  relayResumeUpdate,
  relaySetRateUpdate,
  relayStatusQuery,
} from "../../src/workflows/messages.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

/** A rolling upgrade by Worker Deployment Versioning: two builds side by side, payments in flight. */
const flow = useFlow();
const DEPLOYMENT = "remit";

/** What `temporal worker deployment set-current-version` does; refused until the build's workers poll. */
async function makeCurrent(buildId: string): Promise<void> {
  const { client } = flow();
  await eventually(
    async () =>
      await client.workflowService.setWorkerDeploymentCurrentVersion({
        namespace: client.options.namespace,
        deploymentName: DEPLOYMENT,
        buildId,
        identity: "upgrade.test",
      }),
    { timeoutMs: 30_000 },
  );
}

/** The build that took the workflow's last task, of its latest run. */
async function buildOf(workflowId: string): Promise<string | null | undefined> {
  const { raw } = await flow().client.workflow.getHandle(workflowId).describe();
  return raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId;
}

describe("a new build beside the old one", () => {
  test("loses nothing: payments end where they began, the relay and an authorization go over, and the old build can go", async () => {
    const { client, payments, database } = flow();
    const relayId = workflowIds.outboxRelay({ fromShard: 0, toShard: 63 });
    const relay = client.workflow.getHandle(relayId);
    const old = await flow().startWorker({ REMIT_BUILD_ID: "1.0.0" });
    await makeCurrent("1.0.0");
    await openFundedAccounts(flow());
    const authorization = await payments.pay(aRequest({ capture: "manual" }));
    // With the relay paused, these are in flight for as long as the upgrade takes.
    await relay.executeUpdate(relayPauseUpdate, { args: [{ reason: "upgrade" }] });
    const inFlight = await Promise.all(
      Array.from({ length: 5 }, async () => await payments.pay(aRequest())),
    );

    const next = await flow().startWorker({ REMIT_BUILD_ID: "2.0.0" });
    await makeCurrent("2.0.0");
    // It looks between two windows of a minute each; a change of its rate ends a window early.
    await relay.executeUpdate(relayResumeUpdate);
    await eventually(
      async () => {
        await relay.executeUpdate(relaySetRateUpdate, { args: [{ eventsPerSecondMax: 200 }] });
        expect(await buildOf(relayId)).toBe("2.0.0");
      },
      { timeoutMs: 60_000 },
    );
    expect(await relay.query(relayStatusQuery)).toMatchObject({
      mode: "running",
      eventsPerSecondMax: 200,
    });
    const after = await payments.pay(aRequest());
    for (const payment of [...inFlight, after]) {
      await payments.waitForEnd(payment, { timeoutMs: 30_000 });
      expect(await getPayment(database.app, payment.paymentId)).toMatchObject({
        status: "settled",
      });
    }
    expect(
      await Promise.all(inFlight.map(async ({ workflowId }) => await buildOf(workflowId))),
    ).toEqual(inFlight.map(() => "1.0.0"));
    expect(await buildOf(after.workflowId)).toBe("2.0.0");

    await flow().kill(old, "SIGTERM");
    expect(old.exitCode).toBe(0);
    const reference = { paymentId: authorization.paymentId, ...authorization.parameters };
    const { captureId } = await payments.capture(reference, { key: "capture-after-upgrade" });
    await payments.waitForCapture(reference, captureId, { timeoutMs: 30_000 });
    expect(await getPayment(database.app, authorization.paymentId)).toMatchObject({
      status: "settled",
    });
    expect(await buildOf(authorization.workflowId)).toBe("2.0.0");
    await flow().kill(next, "SIGTERM");
    await expectInvariants(database, 60);
  }, 180_000);
});
