import { republishMessages } from "../../src/activities/operate-outbox.ts";
import { getPayment } from "../../src/database/payment-queries.ts";
import { createSnsClient } from "../../src/messaging/aws-clients.ts";
import { createSnsPublisher } from "../../src/messaging/sns-publisher.ts";
import { ensureTopology, setUpTopology } from "../../src/messaging/topology.ts";
import type { Topology } from "../../src/messaging/topology.ts";
import { createdMessage, expectInvariants } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";

const flow = useFlow();
const PREFIX = `fifo-${process.pid}`;
let topology: Topology;

beforeAll(async () => {
  topology = await ensureTopology(flow().aws, { prefix: PREFIX, fifo: true });
  await flow().startWorker({
    REMIT_TOPIC_ARN: topology.topicArn,
    REMIT_LEDGER_QUEUE_URL: topology.ledgerQueueUrl,
    REMIT_LEDGER_DLQ_URL: topology.ledgerDlqUrl,
  });
  await openFundedAccounts(flow());
}, 60_000);
afterEach(async () => {
  await expectInvariants(flow().database);
});

async function deliveries(messageId: string): Promise<number | undefined> {
  const [row] = await flow().database.admin<{ deliveries: number }>(
    "SELECT deliveries FROM remit.inbox WHERE message_id = $1",
    [messageId],
  );
  return row?.deliveries;
}

describe("on a FIFO topic with FIFO queues", () => {
  test("the names end as AWS demands, and a second setup changes nothing", async () => {
    expect(topology.topicArn).toMatch(/-events\.fifo$/);
    expect(topology.ledgerQueueUrl).toMatch(/-ledger\.fifo$/);
    expect(topology.ledgerDlqUrl).toMatch(/-ledger-dlq\.fifo$/);
    expect((await setUpTopology(flow().aws, { prefix: PREFIX, fifo: true })).changes).toEqual([]);
  });

  test("payments settle, many at once", async () => {
    const { payments } = flow();
    const ends = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const answer = await payments.pay(aRequest());
        return await payments.waitForEnd(answer, { timeoutMs: 30_000 });
      }),
    );
    expect(ends.map(({ status }) => status)).toEqual(ends.map(() => "settled"));
  });

  test("an operator's republish within five minutes is delivered, and absorbed: booked once", async () => {
    const { payments, database, aws } = flow();
    const { paymentId, ...answer } = await payments.pay(aRequest());
    await payments.waitForEnd({ ...answer, paymentId }, { timeoutMs: 30_000 });
    const { messageId } = await createdMessage(database.admin, paymentId);
    const before = (await deliveries(messageId)) ?? 0;
    const sns = createSnsClient(aws, { requestTimeoutMs: 3_000 });
    const publisher = createSnsPublisher(sns, topology.topicArn);
    await eventually(async () => {
      await republishMessages(
        { database: database.app, publisher },
        {
          messageIds: [messageId],
          operator: { actor: "ana@desk", reason: "index rebuilt" },
          isDryRun: false,
        },
      );
    });
    await eventually(async () => expect(await deliveries(messageId)).toBe(before + 1));
    sns.destroy();
    expect(await getPayment(database.app, paymentId)).toMatchObject({ status: "settled" });
  });
});
