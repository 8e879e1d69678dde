import type { SQSClient } from "@aws-sdk/client-sqs";

/** How far the server's clock is from ours by the `Date` of its last answer, which has whole seconds. */
export interface ServerTime {
  /** Positive where the server is ahead. */
  readonly skewMs: number;
  readonly blurMs: number;
}

const DATE_RESOLUTION_MS = 1_000;

/** Notes the time in each answer of this client; the question that is asked anyway tells it. */
export function watchServerTime(sqs: SQSClient, now: () => number): () => ServerTime | null {
  let latest: ServerTime | null = null;
  sqs.middlewareStack.add(
    (next) => async (args) => {
      const before = now();
      const result = await next(args);
      const after = now();
      const { headers } = result.response as { headers?: Record<string, string> };
      const there = Date.parse(headers?.["date"] ?? "");
      if (!Number.isNaN(there)) {
        latest = {
          // A Date is cut off to its second, so the middle of that second is the best guess.
          skewMs: there + DATE_RESOLUTION_MS / 2 - (before + after) / 2,
          blurMs: (DATE_RESOLUTION_MS + after - before) / 2,
        };
      }
      return result;
    },
    { step: "deserialize", name: "remitServerTime" },
  );
  return () => latest;
}
