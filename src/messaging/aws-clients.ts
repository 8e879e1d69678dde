import { SNSClient } from "@aws-sdk/client-sns";
import { SQSClient } from "@aws-sdk/client-sqs";

export interface AwsTarget {
  /** A stand-in's address; null for AWS itself. */
  readonly endpointUrl: string | null;
  readonly region: string;
  /** Only for a stand-in; AWS's default chain otherwise. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
}

export interface AwsTimeouts {
  /** Until the answer begins, and again while it stands still; the SDK has none of its own. For a long poll it must be longer than the poll. */
  readonly requestTimeoutMs: number;
}

const CONNECTION_TIMEOUT_MS = 2_000;

export function createSnsClient(target: AwsTarget, timeouts: AwsTimeouts): SNSClient {
  return new SNSClient(clientConfig(target, timeouts));
}

/** One client for polling and another for deleting: open long polls would use up the sockets. */
export function createSqsClient(target: AwsTarget, timeouts: AwsTimeouts): SQSClient {
  // The queue URL of a stand-in may name a host that doesn't resolve here.
  return new SQSClient({ ...clientConfig(target, timeouts), useQueueUrlAsEndpoint: false });
}

function clientConfig({ endpointUrl, region, credentials }: AwsTarget, timeouts: AwsTimeouts) {
  return {
    region,
    ...(endpointUrl === null ? {} : { endpoint: endpointUrl }),
    ...(credentials === undefined ? {} : { credentials }),
    // Retries are ours: the SDK's give up after 80 ms on a refused connection and run out of tokens.
    maxAttempts: 1,
    requestHandler: {
      connectionTimeout: CONNECTION_TIMEOUT_MS,
      requestTimeout: timeouts.requestTimeoutMs,
      // That one ends with the headers: an answer that stops in its body would be awaited for ever.
      socketTimeout: timeouts.requestTimeoutMs,
      throwOnRequestTimeout: true,
    },
  };
}
