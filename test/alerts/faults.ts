import { randomUUID } from "node:crypto";
import { SendMessageCommand } from "@aws-sdk/client-sqs";
import { Client } from "pg";
import { createSqsClient } from "../../src/messaging/aws-clients.ts";
import { scheduleIds } from "../../src/domain/ids.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest } from "../support/flow.ts";
import type { Flow } from "../support/flow.ts";

/** Faults as they come, each planted for real; what a fault answers are the variables of its runbook. */

/** An event that SNS refuses for what it is: past the rules, which would refuse it first. */
export async function plantDeadEvent({ database }: Flow): Promise<{ MESSAGE_ID: string }> {
  const id = `order-${randomUUID()}`;
  await database.admin(
    `SELECT remit.emit_event('order', '${id}', 'order.shipped', '{}', '/shop', '{}');
     SET LOCAL session_replication_role = replica;
     UPDATE remit.outbox SET headers = '{"no name": "x"}' WHERE aggregate_id = '${id}'`,
  );
  const [row] = await database.admin<{ id: string }>(
    "SELECT id FROM remit.outbox WHERE aggregate_id = $1",
    [id],
  );
  return { MESSAGE_ID: row?.id ?? "" };
}

/** A transaction that somebody forgot, on a connection of its own. */
export async function holdTransaction({
  database,
}: Flow): Promise<{ PID: string; close: () => Promise<void> }> {
  const client = new Client({
    connectionString: database.adminUrl,
    application_name: "forgotten",
  });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("BEGIN");
  const { rows } = await client.query<{ pid: number }>(
    "SELECT pg_backend_pid() AS pid, pg_current_xact_id()",
  );
  return {
    PID: String(rows[0]?.pid),
    close: async () => await client.end().catch(() => undefined),
  };
}

/** Dead rows that VACUUM would remove if nothing was held. */
export async function plantDeadRows({ database }: Flow, count: number): Promise<void> {
  await database.admin(
    `SET session_replication_role = replica;
     INSERT INTO remit.outbox (id, aggregate_type, aggregate_id, aggregate_version, type, payload, shard, status, broker_message_id, published_at)
     SELECT gen_random_uuid(), 'bloat', n::text, 1, 'bloat.made', '{}', 1, 'PUBLISHED', 'x', now() FROM generate_series(1, ${count}) n;
     DELETE FROM remit.outbox WHERE aggregate_type = 'bloat';
     SET session_replication_role = origin`,
  );
}

/** What isn't an event of ours, where the ledger's queue has given it up. */
export async function plantDeadLetter({ aws, ledgerDlqUrl }: Flow): Promise<void> {
  const sqs = createSqsClient(aws, { requestTimeoutMs: 5_000 });
  await sqs.send(new SendMessageCommand({ QueueUrl: ledgerDlqUrl, MessageBody: "no event" }));
  sqs.destroy();
}

/** A run that no worker's code can take on. */
export async function startImpossibleRun({ client }: Flow): Promise<{ WORKFLOW_ID: string }> {
  const workflowId = `impossible-${randomUUID()}`;
  await client.workflow.start("noSuchWorkflow", { workflowId, taskQueue: "payments" });
  return { WORKFLOW_ID: workflowId };
}

/** A balance that its entries don't explain; answers how to put it back. */
export async function bendBalance({ database }: Flow): Promise<() => Promise<void>> {
  const bend = async (by: string): Promise<void> => {
    await database.admin(
      `SET session_replication_role = replica;
       UPDATE remit.accounts SET posted = posted ${by} WHERE id = 'alice';
       SET session_replication_role = origin`,
    );
  };
  await bend("+ 100");
  return async () => await bend("- 100");
}

/** The Schedules stand still, and no look at the books is known. */
export async function stopReconciling({ client, database }: Flow): Promise<void> {
  for (const id of [scheduleIds.reconciliationRecent, scheduleIds.reconciliationFull]) {
    await eventually(async () => await client.schedule.getHandle(id).pause("planted"));
  }
  await database.admin("DELETE FROM remit.reconciliations");
}

/** A payment that is recorded and, by its times, has waited for ten minutes. */
export async function plantOldPayment({
  database,
  payments,
}: Flow): Promise<{ PAYMENT_ID: string }> {
  const { paymentId } = await payments.pay(aRequest());
  await database.admin(
    `SET session_replication_role = replica;
     UPDATE remit.payments SET created_at = created_at - interval '10 minutes', updated_at = updated_at - interval '10 minutes' WHERE id = '${paymentId}';
     SET session_replication_role = origin`,
  );
  return { PAYMENT_ID: paymentId };
}

/** No connection is left for the session that listens. */
export async function deafenListener({ database }: Flow): Promise<{ ROLE: string }> {
  const role = new URL(database.url).username;
  await database.admin(
    `ALTER ROLE "${role}" CONNECTION LIMIT 1;
     SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'remit-listen' AND usename = '${role}'`,
  );
  return { ROLE: role };
}
