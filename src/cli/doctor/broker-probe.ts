import { PublishCommand } from "@aws-sdk/client-sns";
import { v7 as uuidv7 } from "uuid";
import type { BrokerContext } from "./broker-context.ts";
import { ok } from "./check.ts";
import type { Check } from "./check.ts";

/** No filter of ours lets it through, and the ledger would refuse it: no event of ours has its id. */
const PROBE_TYPE = "remit.probe";

/** Publishes, so it is asked for by `--probe` only: a subscriber without a filter gets the message. */
export const probeCheck: Check<BrokerContext> = {
  name: "broker.publish",
  about: "with `--probe` only: the topic takes a message, of a type that the ledger's filter stops",
  judge: async ({ sns, settings: { topicArn } }) => {
    const id = uuidv7();
    const { MessageId } = await sns.send(
      new PublishCommand({
        TopicArn: topicArn,
        Message: JSON.stringify({
          specversion: "1.0",
          id,
          source: "/remit/doctor",
          type: PROBE_TYPE,
          data: {},
        }),
        MessageAttributes: { type: { DataType: "String", StringValue: PROBE_TYPE } },
        ...(topicArn.endsWith(".fifo") ? { MessageGroupId: id, MessageDeduplicationId: id } : {}),
      }),
    );
    return ok(`SNS took it as ${MessageId}`);
  },
};
