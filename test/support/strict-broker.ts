import { once } from "node:events";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { entriesOf, refusalOf } from "./sns-rules.ts";
import type { BatchEntry } from "./sns-rules.ts";

/** What befalls a call: before it reaches the broker, or on the way back. */
export type Fault =
  | { readonly kind: "delay"; readonly ms: number }
  /** The connection ends before anything is forwarded. */
  | { readonly kind: "drop" }
  /** The broker has it, and nobody hears so. */
  | { readonly kind: "lostAnswer" }
  /** Taken and never answered. */
  | { readonly kind: "silence" }
  | { readonly kind: "refuse"; readonly status: number; readonly code: string }
  /** HTTP 200, and these entries (by their place) in `Failed`. */
  | {
      readonly kind: "failEntries";
      readonly places: readonly number[];
      readonly code: string;
      readonly senderFault: boolean;
    }
  /** Each received message twice, the second time with the same handle; or the other way round. */
  | { readonly kind: "repeat" }
  | { readonly kind: "reverse" };

export interface Call {
  readonly action: string;
  readonly entries: number;
}

/**
 * Stands before the emulator and refuses what AWS refuses and the emulator lets through, and makes the network and the
 * service fail as they do: one fault befalls the next call of an action, in the order in which they were asked for.
 */
export interface StrictBroker {
  readonly url: string;
  readonly calls: Call[];
  readonly next: (action: string, ...faults: Fault[]) => void;
  readonly close: () => Promise<void>;
}

export async function startStrictBroker(target: string): Promise<StrictBroker> {
  const calls: Call[] = [];
  const faults: { action: string; fault: Fault }[] = [];
  const server = createServer((incoming, answer) => {
    void handle(incoming, answer).catch(() => answer.destroy());
  });

  async function handle(incoming: IncomingMessage, answer: ServerResponse): Promise<void> {
    const body = await textOf(incoming);
    const form = new URLSearchParams(body);
    const isQuery = incoming.headers["content-type"]?.includes("urlencoded") === true;
    const action = isQuery
      ? (form.get("Action") ?? "")
      : String(incoming.headers["x-amz-target"]).replace("AmazonSQS.", "");
    const entries = action === "PublishBatch" ? entriesOf(form) : [];
    calls.push({ action, entries: entries.length });
    const at = faults.findIndex((asked) => asked.action === action);
    const fault = at < 0 ? undefined : faults.splice(at, 1)[0]?.fault;

    if (fault?.kind === "delay") await delay(fault.ms);
    if (fault?.kind === "drop") return void answer.destroy();
    if (fault?.kind === "silence") return;
    if (fault?.kind === "refuse") return refuse(answer, { ...fault, isQuery });
    const refusal = refusalOf(form, entries);
    if (refusal !== null) return refuse(answer, { status: 400, code: refusal, isQuery });
    const failed = fault?.kind === "failEntries" ? fault : undefined;
    const kept = failed === undefined ? body : withoutEntries(form, entries, failed.places);
    const reply = await forward(target, incoming, kept);
    if (fault?.kind === "lostAnswer") return void answer.destroy();
    const text =
      failed === undefined ? changed(reply.text, fault) : withFailures(reply.text, entries, failed);
    answer.writeHead(reply.status, { "content-type": reply.contentType }).end(text);
  }

  server.listen({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    next: (action, ...asked) => faults.push(...asked.map((fault) => ({ action, fault }))),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

async function textOf(stream: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

function refuse(
  answer: ServerResponse,
  { status, code, isQuery }: { status: number; code: string; isQuery: boolean },
): void {
  const type = status < 500 ? "Sender" : "Receiver";
  const text = isQuery
    ? `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>${type}</Type><Code>${code}</Code><Message>refused</Message></Error><RequestId>r</RequestId></ErrorResponse>`
    : JSON.stringify({ __type: `com.amazonaws.sqs#${code}`, message: "refused" });
  const contentType = isQuery ? "text/xml" : "application/x-amz-json-1.0";
  answer.writeHead(status, { "content-type": contentType }).end(text);
}

async function forward(
  target: string,
  { url, headers }: IncomingMessage,
  body: string,
): Promise<{ status: number; contentType: string; text: string }> {
  const passed = {
    ...headers,
    host: new URL(target).host,
    "content-length": Buffer.byteLength(body),
  };
  const outgoing = httpRequest(new URL(url ?? "/", target), { method: "POST", headers: passed });
  outgoing.end(body);
  const [reply] = (await once(outgoing, "response")) as [IncomingMessage];
  const contentType = reply.headers["content-type"] ?? "text/xml";
  return { status: reply.statusCode ?? 500, contentType, text: await textOf(reply) };
}

function changed(text: string, fault: Fault | undefined): string {
  if (fault?.kind !== "repeat" && fault?.kind !== "reverse") return text;
  const { Messages = [] } = JSON.parse(text) as { Messages?: unknown[] };
  return JSON.stringify({
    Messages: fault.kind === "repeat" ? [...Messages, ...Messages] : Messages.toReversed(),
  });
}

const MEMBER = /^(PublishBatchRequestEntries\.member\.)(\d+)(\..+)$/;

/** The same call with the other entries only, numbered anew. */
function withoutEntries(
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

function withFailures(
  text: string,
  entries: readonly BatchEntry[],
  { places, code, senderFault }: Extract<Fault, { kind: "failEntries" }>,
): string {
  const members = places.map(
    (place) =>
      `<member><Id>${entries[place]?.id}</Id><Code>${code}</Code><Message>on purpose</Message><SenderFault>${senderFault}</SenderFault></member>`,
  );
  const failed = `<Failed>${members.join("")}</Failed>`;
  const cleared = text.replace(/<Failed\s*\/>|<Failed>.*?<\/Failed>/s, "");
  return cleared.replace("</PublishBatchResult>", `${failed}</PublishBatchResult>`);
}
