import { z } from "zod";

/** A message as the ledger takes it from the queue; `payload` is the CloudEvents document, byte for byte. */
export interface IncomingMessage {
  readonly messageId: string;
  readonly type: string;
  readonly payload: string;
}

const cloudEvent = z.object({
  specversion: z.literal("1.0"),
  id: z.uuid(),
  type: z.string().min(1).max(128),
  data: z.record(z.string(), z.unknown()),
});

const snsEnvelope = z.object({
  Type: z.literal("Notification"),
  TopicArn: z.string(),
  Message: z.string(),
});

export type ParsedMessage =
  | { readonly ok: true; readonly message: IncomingMessage }
  | { readonly ok: false; readonly reason: string };

/**
 * Reads a queue's body, raw or wrapped by SNS. It keys on the CloudEvents id: the id of SQS changes with a redrive. A
 * payload of its own that has `Type` and `Message` is not mistaken for an envelope, since it has a `specversion`.
 */
export function parseMessage(body: string): ParsedMessage {
  const json = parseJson(body);
  if (json === undefined) return { ok: false, reason: "the body is not JSON" };
  const reason = unstorable(json, 0);
  if (reason !== null) return { ok: false, reason };
  const raw = cloudEvent.safeParse(json);
  if (raw.success) return accept(raw.data, body);
  const wrapped = snsEnvelope.safeParse(json);
  if (!wrapped.success) return { ok: false, reason: z.prettifyError(raw.error) };
  const content = parseJson(wrapped.data.Message);
  const hidden = unstorable(content, 0);
  if (hidden !== null) return { ok: false, reason: hidden };
  const inner = cloudEvent.safeParse(content);
  if (!inner.success) return { ok: false, reason: z.prettifyError(inner.error) };
  return accept(inner.data, wrapped.data.Message);
}

function accept({ id, type }: z.infer<typeof cloudEvent>, payload: string): ParsedMessage {
  return { ok: true, message: { messageId: id, type, payload } };
}

/** What no jsonb column takes is left to the dead-letter queue; the inbox could not keep it. Our own events never are. */
function unstorable(value: unknown, depth: number): string | null {
  if (depth > DEPTH_MAX) return `the body is nested deeper than ${DEPTH_MAX}`;
  if (typeof value === "string") {
    return value.isWellFormed() && !value.includes("\0")
      ? null
      : "the body has U+0000 or a lone surrogate";
  }
  if (typeof value === "number") {
    return Number.isFinite(value) ? null : "the body has a number beyond every range";
  }
  if (typeof value !== "object" || value === null) return null;
  for (const [name, part] of Object.entries(value)) {
    const reason = unstorable(name, depth + 1) ?? unstorable(part, depth + 1);
    if (reason !== null) return reason;
  }
  return null;
}

const DEPTH_MAX = 32;

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
