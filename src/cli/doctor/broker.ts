import type { Settings } from "../../config/settings.ts";
import { DomainError } from "../../domain/errors.ts";
import { awsError } from "../../messaging/aws-error.ts";
import { createSnsClient, createSqsClient } from "../../messaging/aws-clients.ts";
import { watchServerTime } from "../../messaging/server-time.ts";
import { readTopologyFacts } from "../../messaging/topology-facts.ts";
import type { Look } from "../../messaging/topology-facts.ts";
import { setupFor, whyUnknown } from "./broker-context.ts";
import type { BrokerContext } from "./broker-context.ts";
import { judgeSkew } from "./clock.ts";
import { QUEUE_CHECKS } from "./broker-queues.ts";
import { probeCheck } from "./broker-probe.ts";
import { SUBSCRIPTION_CHECKS } from "./broker-subscription.ts";
import { fail, notJudged, ok } from "./check.ts";
import type { Check, CheckGroup, Finding } from "./check.ts";

const CALL_MS_MAX = 5_000;

const CHECKS: readonly Check<BrokerContext>[] = [
  {
    name: "broker.topic",
    about: "the topic exists, in the region that is asked",
    judge: ({ facts, settings, setup }) => {
      const { topicArn, aws } = settings;
      const region = topicArn.split(":")[3] ?? "";
      if (region !== aws.region) {
        return fail(
          `the topic is in ${region}, and ${aws.region} is asked`,
          `AWS_REGION=${region}, or the ARN of a topic in ${aws.region} in REMIT_TOPIC_ARN`,
        );
      }
      return judgeThere(facts.topic, { what: topicArn, setting: "REMIT_TOPIC_ARN", setup });
    },
  },
  {
    name: "broker.queue",
    about: "the ledger's queue exists",
    judge: ({ facts, settings: { ledgerQueueUrl }, setup }) =>
      judgeThere(facts.queue, { what: ledgerQueueUrl, setting: "REMIT_LEDGER_QUEUE_URL", setup }),
  },
  {
    name: "broker.dlq",
    about: "`REMIT_LEDGER_DLQ_URL` names its dead-letter queue, which exists",
    judge: ({ facts, settings: { ledgerDlqUrl }, setup }) =>
      ledgerDlqUrl === ""
        ? fail(
            "REMIT_LEDGER_DLQ_URL is not set: nobody sees dead letters, remit dlq can't reach them",
            `set REMIT_LEDGER_DLQ_URL to what ${setup} prints`,
          )
        : judgeThere(facts.dlq, { what: ledgerDlqUrl, setting: "REMIT_LEDGER_DLQ_URL", setup }),
  },
  ...SUBSCRIPTION_CHECKS,
  ...QUEUE_CHECKS,
  {
    name: "broker.clock",
    about: "the broker's clock and this machine's agree, by the `Date` of its answers",
    judge: ({ serverTime }) => {
      const time = serverTime();
      if (time === null) return notJudged("its answers have no Date");
      return judgeSkew({ whose: "the broker's", ...time });
    },
  },
];

/** The checks of SNS and SQS. With `isProbed`, a message is published as well. */
export function brokerGroup(
  settings: Settings | null,
  { now, isProbed }: { now: () => number; isProbed: boolean },
): CheckGroup<BrokerContext> {
  return {
    reach: { name: "broker.reachable", about: "SNS and SQS answer, and accept the credentials" },
    checks: isProbed ? [...CHECKS, probeCheck] : CHECKS,
    open: async () => {
      if (settings === null || (settings.topicArn === "" && settings.ledgerQueueUrl === "")) {
        throw new NoTargetError();
      }
      const { aws } = settings;
      const sns = createSnsClient(aws, { requestTimeoutMs: CALL_MS_MAX });
      const sqs = createSqsClient(aws, { requestTimeoutMs: CALL_MS_MAX });
      const serverTime = watchServerTime(sqs, now);
      const facts = await readTopologyFacts({ sns, sqs }, settings);
      const close = async (): Promise<void> => {
        sns.destroy();
        sqs.destroy();
        await Promise.resolve();
      };
      const looks = [facts.topic, facts.queue, facts.dlq];
      const unanswered = looks.find((look) => look.kind === "unknown");
      if (unanswered?.kind === "unknown" && looks.every(({ kind }) => kind !== "found")) {
        await close();
        throw unanswered.error;
      }
      const context = { settings, sns, sqs, facts, serverTime, setup: setupFor(settings) };
      return { context, found: aws.endpointUrl ?? `AWS, ${aws.region}`, close };
    },
    explain: (error) => explain(error, settings),
  };
}

class NoTargetError extends Error {}

function explain(error: unknown, settings: Settings | null): Finding {
  if (error instanceof NoTargetError || settings === null) {
    return notJudged("REMIT_TOPIC_ARN and REMIT_LEDGER_QUEUE_URL are missing");
  }
  const known = awsError(error, settings.aws);
  if (!(known instanceof DomainError)) return fail("the call failed unexpectedly", "report it");
  const [found = "", fix] = known.message.split(/: (?=set |sign |grant )/);
  if (found.startsWith("AWS denies it")) return fail(found, "grant what docs/doctor.md lists");
  const isAway = known.code === "broker_unreachable";
  return fail(
    found,
    fix ?? (isAway ? "start it, or mend AWS_ENDPOINT_URL and AWS_REGION" : "see what AWS says"),
  );
}

function judgeThere(
  look: Look<unknown>,
  { what, setting, setup }: { what: string; setting: string; setup: string },
): Finding {
  if (look.kind === "found") return ok(what);
  if (look.kind === "missing") {
    return fail(`${what || setting} does not exist`, `${setup}, or mend ${setting}`);
  }
  return whyUnknown(look, setting) ?? ok(what);
}
