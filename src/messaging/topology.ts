import { isDeepStrictEqual } from "node:util";
import { awsError } from "./aws-error.ts";
import { createSnsClient, createSqsClient } from "./aws-clients.ts";
import type { AwsTarget } from "./aws-clients.ts";
import { findQueue, makeQueue, setQueueAttributes } from "./queues.ts";
import type { Queue } from "./queues.ts";
import {
  findSubscription,
  findTopic,
  makeSubscription,
  makeTopic,
  setSubscriptionAttribute,
} from "./topics.ts";

export interface Topology {
  readonly topicArn: string;
  readonly ledgerQueueUrl: string;
  readonly ledgerDlqUrl: string;
}

/** One thing that was not as it should be: made, or one of its attributes mended. */
export interface TopologyChange {
  readonly resource: string;
  readonly action: "create" | "change";
  readonly attribute: string | null;
  /** What stood there before; null where nothing did. */
  readonly from: string | null;
  readonly to: string | null;
}

export interface TopologyInput {
  readonly prefix: string;
  /** Looks and reports, and changes nothing. */
  readonly dryRun?: boolean;
  /** Names end in `.fifo`: a payment's events arrive in their order, at a lower throughput and a higher price. */
  readonly fifo?: boolean;
}

export interface TopologyReport {
  readonly changes: readonly TopologyChange[];
  /** Null where something is missing still: only after a dry run. */
  readonly topology: Topology | null;
}

/** What the ledger books. An automatic payment is booked from its creation, a manual one from its captures. */
export const LEDGER_FILTER = {
  $or: [
    { type: ["payment.created"], capture: ["automatic"] },
    { type: ["payment.captured", "refund.created"] },
  ],
};

/** Received this often without an end, a message goes to the dead-letter queue. */
const RECEIVE_COUNT_MAX = 10;
/** Longer than starting a workflow on a busy Temporal takes; a crashed worker's messages come back after it. */
const VISIBILITY_SECONDS = 30;
/** The most that SQS keeps; a dead letter keeps its first time of arrival, so the DLQ must keep longer than the queue. */
const DLQ_RETENTION_SECONDS = 14 * 24 * 3600;
const QUEUE_RETENTION_SECONDS = 4 * 24 * 3600;
/** Marks our statement in a queue's policy; others in it are somebody's own and stay. */
const STATEMENT_ID = "RemitTopicMaySend";

/**
 * Creates topic, ledger queue, dead-letter queue and the filtered, raw subscription, named after the prefix. A second
 * call changes nothing; what drifted is mended.
 *
 * @throws DomainError `usage` where AWS refuses the caller, `broker_unreachable`
 */
export async function ensureTopology(
  target: AwsTarget,
  input: Omit<TopologyInput, "dryRun"> = { prefix: "remit" },
): Promise<Topology> {
  const { topology } = await setUpTopology(target, input);
  if (topology === null) throw new Error("a topology that was made has no addresses");
  return topology;
}

/** The same, with a report of what it did, or with `dryRun` of what it would do. */
export async function setUpTopology(
  target: AwsTarget,
  { prefix, dryRun = false, fifo = false }: TopologyInput,
): Promise<TopologyReport> {
  const sns = createSnsClient(target, { requestTimeoutMs: CALL_MS_MAX });
  const sqs = createSqsClient(target, { requestTimeoutMs: CALL_MS_MAX });
  try {
    const suffix = fifo ? ".fifo" : "";
    return await new Setup({ sns, sqs, prefix, suffix, dryRun }).run();
  } catch (error) {
    throw awsError(error, target);
  } finally {
    sns.destroy();
    sqs.destroy();
  }
}

const CALL_MS_MAX = 5_000;

class Setup {
  readonly #sns: ReturnType<typeof createSnsClient>;
  readonly #sqs: ReturnType<typeof createSqsClient>;
  readonly #prefix: string;
  readonly #suffix: string;
  readonly #dryRun: boolean;
  readonly #changes: TopologyChange[] = [];

  constructor(context: {
    sns: ReturnType<typeof createSnsClient>;
    sqs: ReturnType<typeof createSqsClient>;
    prefix: string;
    suffix: string;
    dryRun: boolean;
  }) {
    this.#sns = context.sns;
    this.#sqs = context.sqs;
    this.#prefix = context.prefix;
    this.#suffix = context.suffix;
    this.#dryRun = context.dryRun;
  }

  async run(): Promise<TopologyReport> {
    const dlq = await this.#queue(`${this.#prefix}-ledger-dlq${this.#suffix}`);
    const queue = await this.#queue(`${this.#prefix}-ledger${this.#suffix}`);
    const topicArn = await this.#topic(`${this.#prefix}-events${this.#suffix}`, queue ?? dlq);
    if (dlq !== null) await this.#mendQueue(dlq, dlqAttributes(dlq));
    if (dlq !== null && queue !== null && topicArn !== null) {
      await this.#mendQueue(queue, queueAttributes(queue, { dlq, topicArn }));
      await this.#subscription({ topicArn, queueArn: queue.arn });
      const topology = { topicArn, ledgerQueueUrl: queue.url, ledgerDlqUrl: dlq.url };
      return { changes: this.#changes, topology };
    }
    this.#created(`subscription of ${this.#prefix}-ledger${this.#suffix}`);
    return { changes: this.#changes, topology: null };
  }

  #created(resource: string): void {
    this.#changes.push({ resource, action: "create", attribute: null, from: null, to: null });
  }

  async #queue(name: string): Promise<Queue | null> {
    const found = await findQueue(this.#sqs, name);
    if (found !== null) return found;
    this.#created(`queue ${name}`);
    return this.#dryRun ? null : await makeQueue(this.#sqs, name);
  }

  async #topic(name: string, neighbour: Queue | null): Promise<string | null> {
    const found = await findTopic(this.#sns, { name, neighbourArn: neighbour?.arn ?? null });
    if (found !== null) return found;
    this.#created(`topic ${name}`);
    return this.#dryRun ? null : await makeTopic(this.#sns, name);
  }

  async #mendQueue(queue: Queue, wanted: Record<string, unknown>): Promise<void> {
    const drifted = this.#drift(`queue ${queue.name}`, queue.attributes, wanted);
    if (drifted.length > 0 && !this.#dryRun) {
      await setQueueAttributes(this.#sqs, queue, Object.fromEntries(drifted));
    }
  }

  async #subscription(ends: { topicArn: string; queueArn: string }): Promise<void> {
    const wanted = { RawMessageDelivery: "true", FilterPolicy: LEDGER_FILTER };
    const found = await findSubscription(this.#sns, ends);
    if (found === null) {
      this.#created(`subscription of ${this.#prefix}-ledger${this.#suffix}`);
      if (!this.#dryRun) await makeSubscription(this.#sns, ends, asTexts(wanted));
      return;
    }
    const resource = `subscription of ${this.#prefix}-ledger${this.#suffix}`;
    for (const change of this.#drift(resource, found.attributes, wanted)) {
      if (!this.#dryRun) await setSubscriptionAttribute(this.#sns, found.arn, change);
    }
  }

  /** Notes what differs and returns it as the API takes it. */
  #drift(
    resource: string,
    found: Readonly<Record<string, string>>,
    wanted: Record<string, unknown>,
  ): [string, string][] {
    return Object.entries(asTexts(wanted)).filter(([attribute, to]) => {
      const from = found[attribute] ?? null;
      if (isSameAttribute(from, to)) return false;
      this.#changes.push({ resource, action: "change", attribute, from, to });
      return true;
    });
  }
}

function dlqAttributes(dlq: Queue): Record<string, unknown> {
  // By name, since the queue may be missing in a dry run.
  const queueArn = dlq.arn.replace(/-dlq(\.fifo)?$/, "$1");
  return {
    MessageRetentionPeriod: String(DLQ_RETENTION_SECONDS),
    ...encryption(dlq),
    RedriveAllowPolicy: { redrivePermission: "byQueue", sourceQueueArns: [queueArn] },
  };
}

function queueAttributes(
  queue: Queue,
  { dlq, topicArn }: { dlq: Queue; topicArn: string },
): Record<string, unknown> {
  return {
    MessageRetentionPeriod: String(QUEUE_RETENTION_SECONDS),
    VisibilityTimeout: String(VISIBILITY_SECONDS),
    ...encryption(queue),
    RedrivePolicy: { deadLetterTargetArn: dlq.arn, maxReceiveCount: RECEIVE_COUNT_MAX },
    Policy: policyOf(queue, topicArn),
  };
}

/** A key of the owner's own stays: SQS's key would take its place. */
function encryption({ attributes }: Queue): Record<string, string> {
  return attributes["KmsMasterKeyId"] === undefined ? { SqsManagedSseEnabled: "true" } : {};
}

/** Lets our topic send to the queue, and nobody else by this statement. */
function sendStatement({ queueArn, topicArn }: { queueArn: string; topicArn: string }): {
  readonly Sid: string;
} & Record<string, unknown> {
  return {
    Sid: STATEMENT_ID,
    Effect: "Allow",
    Principal: { Service: "sns.amazonaws.com" },
    Action: "sqs:SendMessage",
    Resource: queueArn,
    Condition: { ArnEquals: { "aws:SourceArn": topicArn } },
  };
}

function policyOf(queue: Queue, topicArn: string): unknown {
  const statement = sendStatement({ queueArn: queue.arn, topicArn });
  const existing = parseJson(queue.attributes["Policy"] ?? null) as {
    Statement?: { Sid?: string }[];
  } | null;
  const others = (existing?.Statement ?? []).filter(({ Sid }) => Sid !== STATEMENT_ID);
  return { Version: "2012-10-17", ...existing, Statement: [...others, statement] };
}

function asTexts(attributes: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [
      name,
      typeof value === "string" ? value : JSON.stringify(value),
    ]),
  );
}

/** AWS answers a document with other spaces and orders than it was given, and a number as text or the other way. */
export function isSameAttribute(found: string | null, wanted: string): boolean {
  if (found === wanted) return true;
  return isDeepStrictEqual(withTextNumbers(parseJson(found)), withTextNumbers(parseJson(wanted)));
}

function withTextNumbers(value: unknown): unknown {
  if (typeof value === "number") return String(value);
  if (Array.isArray(value)) return value.map(withTextNumbers);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, part]) => [name, withTextNumbers(part)]),
  );
}

function parseJson(text: string | null): unknown {
  if (text === null || text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
