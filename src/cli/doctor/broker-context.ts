import type { SNSClient } from "@aws-sdk/client-sns";
import type { SQSClient } from "@aws-sdk/client-sqs";
import type { Settings } from "../../config/settings.ts";
import type { ServerTime } from "../../messaging/server-time.ts";
import type { Look, TopologyFacts } from "../../messaging/topology-facts.ts";
import { notJudged } from "./check.ts";
import type { Finding } from "./check.ts";

export interface BrokerContext {
  readonly settings: Settings;
  readonly sns: SNSClient;
  readonly sqs: SQSClient;
  readonly facts: TopologyFacts;
  readonly serverTime: () => ServerTime | null;
  /** The command that mends topic, queues and subscription, where they have the names that it gives. */
  readonly setup: string;
}

/** What stands in the way of a judgement about a part; null where it was found. */
export function whyUnknown(look: Look<unknown>, name: string): Finding | null {
  if (look.kind === "found") return null;
  if (look.kind === "missing") return notJudged(`see ${name}`);
  const { name: error = "unknown" } = look.error as { name?: string };
  return notJudged(`AWS refuses the look (${error}): grant what docs/doctor.md lists`);
}

/** `remit aws setup` finds its own by their names. */
export function setupFor({ topicArn, ledgerQueueUrl }: Settings): string {
  const [, prefix, fifo] = /([^:]+)-events(\.fifo)?$/.exec(topicArn) ?? [];
  const [, ofQueue] = /([^/]+)-ledger(?:\.fifo)?$/.exec(ledgerQueueUrl) ?? [];
  const name = prefix ?? ofQueue ?? "remit";
  return `remit aws setup --prefix ${name}${fifo === undefined ? "" : " --fifo"}`;
}
