import type { BatchEntry } from "./sns-rules.ts";
import type { RefusedEntry } from "./sqs-rules.ts";

/** What befalls a call: before it reaches the broker, or on the way back. */
export type Fault =
  | { readonly kind: "delay"; readonly ms: number }
  /** The connection ends before anything is forwarded. */
  | { readonly kind: "drop" }
  /** The broker has it, and nobody hears so. */
  | { readonly kind: "lostAnswer" }
  /** Taken and never answered. */
  | { readonly kind: "silence" }
  /** The answer starts, and stops in the middle of its body. */
  | { readonly kind: "halfAnswer" }
  | { readonly kind: "refuse"; readonly status: number; readonly code: string }
  /** Refused for a signature that is too old or too young by the server's clock, which its `Date` tells. */
  | { readonly kind: "skewedClock"; readonly aheadMs: number }
  /** HTTP 200, and these entries in `Failed`. */
  | { readonly kind: "failEntries"; readonly failures: readonly EntryFailure[] }
  /** Each received message twice with the same handle; or first with one that is no longer good; or in reverse. */
  | { readonly kind: "repeat" }
  | { readonly kind: "repeatOutdated" }
  | { readonly kind: "reverse" };

export interface EntryFailure {
  /** Which entry of the call. */
  readonly place: number;
  readonly code: string;
  readonly senderFault: boolean;
}

interface ReceivedAnswer {
  readonly Messages?: readonly { readonly ReceiptHandle: string }[];
}

/** What comes back of a receive, or of a SendMessageBatch of which some entries were refused. */
export function changed(
  text: string,
  { fault, refusedEntries }: { fault: Fault | undefined; refusedEntries: readonly RefusedEntry[] },
): string {
  if (refusedEntries.length > 0) {
    const answer = JSON.parse(text === "" ? "{}" : text) as { Successful?: unknown[] };
    return JSON.stringify({ Successful: answer.Successful ?? [], Failed: refusedEntries });
  }
  if (fault === undefined || !/^(repeat|repeatOutdated|reverse)$/.test(fault.kind)) return text;
  const { Messages = [] } = JSON.parse(text) as ReceivedAnswer;
  if (fault.kind === "reverse") return JSON.stringify({ Messages: Messages.toReversed() });
  const outdated = Messages.map((message) => ({
    ...message,
    ReceiptHandle: fault.kind === "repeat" ? message.ReceiptHandle : "outdated",
  }));
  return JSON.stringify({ Messages: [...outdated, ...Messages] });
}

const MEMBER = /^(PublishBatchRequestEntries\.member\.)(\d+)(\..+)$/;

/** The same call with the other entries only, numbered anew. */
export function withoutEntries(
  form: URLSearchParams,
  entries: readonly BatchEntry[],
  places: readonly number[],
): string {
  const kept = entries.filter((_, place) => !places.includes(place)).map(({ member }) => member);
  const fields = [...form].flatMap(([name, value]): [string, string][] => {
    const [, prefix, member, rest] = MEMBER.exec(name) ?? [];
    if (prefix === undefined) return [[name, value]];
    const place = kept.indexOf(Number(member));
    return place < 0 ? [] : [[`${prefix}${place + 1}${rest}`, value]];
  });
  return new URLSearchParams(fields).toString();
}

/** HTTP 200, and yet these failed. */
export function withFailures(
  text: string,
  entries: readonly BatchEntry[],
  failures: readonly EntryFailure[],
): string {
  const members = failures.map(
    ({ place, code, senderFault }) =>
      `<member><Id>${entries[place]?.id}</Id><Code>${code}</Code><Message>on purpose</Message><SenderFault>${senderFault}</SenderFault></member>`,
  );
  const failed = `<Failed>${members.join("")}</Failed>`;
  const cleared = text.replace(/<Failed\s*\/>|<Failed>.*?<\/Failed>/s, "");
  return cleared.replace("</PublishBatchResult>", `${failed}</PublishBatchResult>`);
}
