import { DomainError } from "../../domain/errors.ts";
import { assertInboxOutlivesQueues } from "../../messaging/queue-retention.ts";
import { depthOf } from "../../messaging/queue-depths.ts";
import type { Queue } from "../../messaging/queues.ts";
import { VISIBILITY_SECONDS } from "../../messaging/sqs-receiver.ts";
import { letsTopicSend } from "../../messaging/queue-policy.ts";
import { whyUnknown } from "./broker-context.ts";
import type { BrokerContext } from "./broker-context.ts";
import { fail, notJudged, ok, warn } from "./check.ts";
import type { Check, Finding } from "./check.ts";

/** Fewer, and an outage of a minute fills the dead-letter queue; more, and a poisonous message goes round for days. */
const RECEIVES_LEAST = 5;
const RECEIVES_MOST = 100;
/** AWS's own key, whose policy can't be changed, so SNS may not use it. */
const AWS_MANAGED_KEY = /alias\/aws\/sqs$/;

/** The queue, its dead-letter queue, and how they fit together and to the settings. */
export const QUEUE_CHECKS: readonly Check<BrokerContext>[] = [
  {
    name: "broker.policy",
    about: "the queue's policy lets the topic send",
    judge: (context) =>
      ofQueue(context, (queue) => {
        if (context.facts.topic.kind !== "found") return notJudged("see broker.topic");
        const ends = { queueArn: queue.arn, topicArn: context.settings.topicArn };
        return letsTopicSend(queue.attributes["Policy"], ends)
          ? ok("the topic may send")
          : fail("the topic may not send to the queue: nothing arrives", context.setup);
      }),
  },
  {
    name: "broker.redrive",
    about:
      "the queue gives up to the dead-letter queue that the settings name, after a sane number of tries",
    judge: (context) => ofQueue(context, (queue) => judgeRedrive(queue, context)),
  },
  {
    name: "broker.visibility",
    about: "the queue's visibility timeout is no shorter than the intake's own",
    judge: (context) =>
      ofQueue(context, ({ attributes }) => {
        const seconds = Number(attributes["VisibilityTimeout"] ?? 0);
        if (seconds >= VISIBILITY_SECONDS) return ok(`${seconds} s`);
        return warn(
          `${seconds} s, where the intake asks for ${VISIBILITY_SECONDS} s`,
          context.setup,
        );
      }),
  },
  {
    name: "broker.retention",
    about:
      "a dead letter outlives the queue, and the inbox remembers longer than both keep a message",
    judge: judgeRetention,
  },
  {
    name: "broker.fifo",
    about: "topic and queues are all FIFO or none is",
    judge: (context) => {
      const { topicArn, ledgerQueueUrl, ledgerDlqUrl } = context.settings;
      const names = [topicArn, ledgerQueueUrl, ledgerDlqUrl].filter((name) => name !== "");
      const fifo = names.filter((name) => name.endsWith(".fifo"));
      if (fifo.length === 0) return ok("none is");
      if (fifo.length === names.length) return ok("all are");
      return fail(
        `only ${fifo.join(", ")}`,
        "name a topic and queues of one kind: remit aws setup [--fifo]",
      );
    },
  },
  {
    name: "broker.encryption",
    about: "the queue is encrypted, by a key that SNS may use",
    judge: (context) => ofQueue(context, (queue) => judgeEncryption(queue, context.setup)),
  },
  {
    name: "broker.dead_letters",
    about: "no letter waits in the dead-letter queue",
    judge: ({ facts: { dlq } }) => {
      if (dlq.kind !== "found") return whyUnknown(dlq, "broker.dlq") ?? ok("");
      const { visible, inFlight } = depthOf(dlq.part.attributes);
      const delayed = Number(dlq.part.attributes["ApproximateNumberOfMessagesDelayed"] ?? 0);
      // What somebody looks at this moment is one as well.
      const count = visible + inFlight + delayed;
      return count === 0 ? ok("empty") : warn(`${count} dead letters`, "remit dlq peek");
    },
  },
];

function ofQueue({ facts }: BrokerContext, judge: (queue: Queue) => Finding): Finding {
  const { queue } = facts;
  if (queue.kind === "found") return judge(queue.part);
  return whyUnknown(queue, "broker.queue") ?? ok("");
}

function judgeRedrive({ attributes }: Queue, { facts, setup }: BrokerContext): Finding {
  const policy = parsed(attributes["RedrivePolicy"]);
  if (policy === null) {
    return fail("the queue has no redrive policy: a poisonous message comes for ever", setup);
  }
  const target = String(policy["deadLetterTargetArn"]);
  const receives = Number(policy["maxReceiveCount"]);
  if (receives < RECEIVES_LEAST || receives > RECEIVES_MOST) {
    return fail(
      `maxReceiveCount is ${receives}, expected ${RECEIVES_LEAST} to ${RECEIVES_MOST}`,
      setup,
    );
  }
  if (facts.dlq.kind !== "found") return notJudged("see broker.dlq");
  if (target !== facts.dlq.part.arn) {
    return fail(
      `it gives up to ${target}, and REMIT_LEDGER_DLQ_URL is ${facts.dlq.part.url}`,
      `${setup}, or name that queue in REMIT_LEDGER_DLQ_URL`,
    );
  }
  return ok(`after ${receives} receives`);
}

async function judgeRetention({ facts, settings, sqs, setup }: BrokerContext): Promise<Finding> {
  const { queue, dlq } = facts;
  if (queue.kind !== "found") return whyUnknown(queue, "broker.queue") ?? ok("");
  // Of one that isn't named, the most that SQS keeps is assumed.
  if (dlq.kind !== "found" && settings.ledgerDlqUrl !== "") return notJudged("see broker.dlq");
  const ofQueueSeconds = Number(queue.part.attributes["MessageRetentionPeriod"]);
  if (dlq.kind === "found") {
    const ofDlqSeconds = Number(dlq.part.attributes["MessageRetentionPeriod"]);
    if (ofDlqSeconds < ofQueueSeconds) {
      return fail(
        `the dead-letter queue keeps ${ofDlqSeconds} s, less than the queue's ${ofQueueSeconds} s: a letter may vanish as it arrives`,
        setup,
      );
    }
  }
  try {
    const { inboxRetentionMs } = settings.worker;
    const { endpointUrl } = settings.aws;
    await assertInboxOutlivesQueues(sqs, { ...settings, inboxRetentionMs, endpointUrl });
    return ok(`the inbox remembers for ${inboxRetentionMs / 3_600_000} h`);
  } catch (error) {
    if (!(error instanceof DomainError) || error.code !== "usage") throw error;
    const least = /set it to (\d+)/.exec(error.message)?.[1] ?? "more";
    return fail(error.message, `REMIT_INBOX_RETENTION_HOURS=${least}`);
  }
}

function judgeEncryption({ attributes }: Queue, setup: string): Finding {
  const key = attributes["KmsMasterKeyId"];
  if (key !== undefined && AWS_MANAGED_KEY.test(key)) {
    return fail(
      `the key is ${key}, which SNS may not use: nothing arrives`,
      "take SQS's own encryption (SqsManagedSseEnabled) or a key of your own, then remit aws setup",
    );
  }
  if (key !== undefined) {
    return ok(
      `by key ${key}, whose policy must allow sns.amazonaws.com kms:GenerateDataKey* and kms:Decrypt`,
    );
  }
  return attributes["SqsManagedSseEnabled"] === "true"
    ? ok("by SQS's own key")
    : warn("the queue is not encrypted", setup);
}

function parsed(text: string | undefined): Record<string, unknown> | null {
  if (text === undefined || text === "") return null;
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return null;
  }
}
