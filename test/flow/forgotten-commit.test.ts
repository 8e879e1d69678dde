import { workflowIds } from "../../src/domain/ids.ts";
import {
  ledgerDecisionSignal,
  relayPauseUpdate,
  relayResumeUpdate,
} from "../../src/workflows/messages.ts";
import { expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

/** A failover without synchronous replication forgets commits that were answered; Temporal still has the request. */
const flow = useFlow();

beforeAll(async () => {
  await flow().startWorker();
  await openFundedAccounts(flow());
}, 60_000);

/** As if the payment's transaction had never been. */
async function forget(paymentId: string, key: string): Promise<void> {
  await flow().database.admin(
    `SET session_replication_role = replica;
     UPDATE remit.accounts SET held = held - (SELECT sum(remaining) FROM remit.holds WHERE payment_id = '${paymentId}')
      WHERE id = (SELECT account_id FROM remit.holds WHERE payment_id = '${paymentId}');
     DELETE FROM remit.outbox WHERE aggregate_id = '${paymentId}';
     DELETE FROM remit.outbox_heads WHERE aggregate_id = '${paymentId}';
     DELETE FROM remit.holds WHERE payment_id = '${paymentId}';
     DELETE FROM remit.payments WHERE id = '${paymentId}';
     DELETE FROM remit.idempotency_keys WHERE key = '${key}';
     SET session_replication_role = origin`,
  );
}

test("a payment that PostgreSQL has forgotten is recorded again by whoever waits for it, and paid once", async () => {
  const { client, payments, database } = flow();
  const range = { fromShard: 0, toShard: 63 };
  const relay = client.workflow.getHandle(workflowIds.outboxRelay(range));
  await relay.executeUpdate(relayPauseUpdate, { args: [{ reason: "a failover is played" }] });
  const request = aRequest();
  const answer = await payments.pay(request);
  await forget(answer.paymentId, request.key);
  await expectInvariants(database);
  // What the supervisor sends to a run whose key isn't recorded.
  const run = client.workflow.getHandle(answer.workflowId);
  const look = { status: "failed", failureCode: null, messageId: null } as const;
  await run.signal(ledgerDecisionSignal, look);
  await eventually(async () => expect((await run.describe()).status.name).toBe("FAILED"));
  await relay.executeUpdate(relayResumeUpdate);
  const end = await payments.waitForEnd(answer, { timeoutMs: 20_000 });
  expect(end).toMatchObject({ paymentId: answer.paymentId, status: "settled" });
  await expectInvariants(database);
}, 60_000);
