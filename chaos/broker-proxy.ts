import { once } from "node:events";
import { Agent, createServer, request } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Step } from "./failpoints.ts";
import { onLoopback } from "./on-loopback.ts";
import type { BrokerAction, BrokerFault, Proxy, ProxyContext } from "./traffic.ts";

/** A reverse proxy between a worker and the broker: failpoints, faults, and a count of what went through. */
export async function startBrokerProxy(
  target: { host: string; port: number },
  context: ProxyContext,
): Promise<Proxy> {
  const agent = new Agent({ keepAlive: true });
  const server = createServer((incoming, outgoing) => {
    handle({ incoming, outgoing, agent, target, context }).catch(() => outgoing.destroy());
  });
  server.keepAliveTimeout = 60_000;
  return await onLoopback(server, () => {
    server.closeAllConnections();
    agent.destroy();
  });
}

interface Handling {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly agent: Agent;
  readonly target: { host: string; port: number };
  readonly context: ProxyContext;
}

interface Answer {
  readonly status: number;
  readonly headers: Record<string, string | string[] | undefined>;
  readonly body: string;
}

/** The step before which a call stands; `after` it for a delete and a receive, `ack` for SNS's answer. */
const STEP_OF_ACTION: Readonly<Partial<Record<BrokerAction, Step>>> = {
  PublishBatch: "send",
  ReceiveMessage: "receive",
  DeleteMessageBatch: "delete",
};

async function handle(handling: Handling): Promise<void> {
  const { incoming, outgoing, context } = handling;
  const body = (await readAll(incoming)).toString();
  const action = actionOf(incoming, body);
  const fault = context.traffic.brokerFault({ workerName: context.workerName, action });
  if (fault?.kind === "delay") await delay(fault.ms);
  if (fault?.kind === "refuse") return refuse(outgoing, action, fault);
  const step = STEP_OF_ACTION[action];
  if (step !== undefined && (await context.reach("before", step)) === "drop") {
    return void outgoing.destroy();
  }
  const call = { handling, body, fault };
  const answer = action === "PublishBatch" ? await publish(call) : await passOn(call, action, step);
  if (answer === null || fault?.kind === "lostAnswer") return void outgoing.destroy();
  reply(outgoing, answer);
  if (action === "PublishBatch") await context.reach("after", "ack");
}

interface Call {
  readonly handling: Handling;
  readonly body: string;
  readonly fault: BrokerFault | null;
}

/** Null where nobody is left to be answered. */
async function publish({ handling, body, fault }: Call): Promise<Answer | null> {
  const { context } = handling;
  const isHalved = fault?.kind === "failHalf" || fault?.kind === "swallowHalf";
  const batch = entriesOf(new URLSearchParams(body));
  const kept = isHalved ? batch.slice(0, Math.ceil(batch.length / 2)) : batch;
  const passing = forward(handling, isHalved ? formOf(body, kept) : body);
  // It is awaited only after the failpoint.
  passing.catch(() => undefined);
  // Passed on, and the worker is gone before anything comes back: the broker has it all the same.
  const isGone = (await context.reach("after", "send")) === "drop";
  const answer = await passing;
  count(context, kept, answer);
  if (isGone || (await context.reach("before", "ack")) === "drop") return null;
  if (!isHalved) return answer;
  if (fault.kind === "swallowHalf") context.traffic.swallowed += batch.length - kept.length;
  return { ...answer, body: withOthers(answer.body, batch.slice(kept.length), fault) };
}

async function passOn(
  { handling, body, fault }: Call,
  action: BrokerAction,
  step: Step | undefined,
): Promise<Answer | null> {
  const given = await forward(handling, body);
  const isReceive = action === "ReceiveMessage";
  const answer = isReceive ? await received(handling, given, fault) : given;
  // A poll that brings nothing is no hit.
  const isHit = step !== undefined && (!isReceive || hasMessages(answer));
  return isHit && (await handling.context.reach("after", step)) === "drop" ? null : answer;
}

function actionOf({ headers }: IncomingMessage, body: string): BrokerAction {
  const named = /\.(\w+)$/.exec(String(headers["x-amz-target"] ?? ""))?.[1];
  const action = named ?? /(?:^|&)Action=(\w+)/.exec(body)?.[1];
  return action === "PublishBatch" || action === "ReceiveMessage" || action === "DeleteMessageBatch"
    ? action
    : "other";
}

async function forward({ incoming, agent, target }: Handling, body: string): Promise<Answer> {
  const {
    "content-length": _,
    "transfer-encoding": __,
    connection: ___,
    ...headers
  } = incoming.headers;
  const isPoll = actionOf(incoming, body) === "ReceiveMessage";
  const outward = request({
    ...target,
    agent,
    method: incoming.method ?? "POST",
    path: incoming.url ?? "/",
    headers: { ...headers, "content-length": Buffer.byteLength(body) },
  });
  // Whoever awaits the answer hears of it; a call that was given up says so, too, and nobody listens any more.
  outward.on("error", () => undefined);
  // A long poll that nobody waits for any more would take messages along; everything else reaches the broker.
  const giveUp = (): void => void (isPoll && outward.destroy());
  incoming.socket.once("close", giveUp);
  outward.once("close", () => incoming.socket.off("close", giveUp));
  const answered = once(outward, "response") as Promise<[IncomingMessage]>;
  outward.end(body);
  const [response] = await answered;
  return {
    status: response.statusCode ?? 502,
    headers: response.headers,
    body: (await readAll(response)).toString(),
  };
}

function reply(outgoing: ServerResponse, { status, headers, body }: Answer): void {
  const { "content-length": _, "transfer-encoding": __, connection: ___, ...kept } = headers;
  outgoing.writeHead(status, { ...kept, "content-length": Buffer.byteLength(body) });
  outgoing.end(body);
}

function refuse(
  outgoing: ServerResponse,
  action: BrokerAction,
  { status, code }: Extract<BrokerFault, { kind: "refuse" }>,
): void {
  const isSns = action === "PublishBatch";
  outgoing.writeHead(status, { "content-type": isSns ? "text/xml" : "application/x-amz-json-1.0" });
  outgoing.end(
    isSns
      ? `<ErrorResponse><Error><Type>Sender</Type><Code>${code}</Code><Message>on purpose</Message></Error><RequestId>chaos</RequestId></ErrorResponse>`
      : JSON.stringify({ __type: code, message: "on purpose" }),
  );
}

interface BatchEntry {
  readonly member: string;
  readonly id: string;
  readonly messageId: string;
}

const MEMBER = /^(PublishBatchRequestEntries\.(?:member|entry)\.)(\d+)(\..+)$/;

function entriesOf(form: URLSearchParams): BatchEntry[] {
  return [...form].flatMap(([name, value]): BatchEntry[] => {
    const [, prefix = "", member = "", rest] = MEMBER.exec(name) ?? [];
    if (rest !== ".Id") return [];
    return [{ member, id: value, messageId: messageIdOf(form.get(`${prefix}${member}.Message`)) }];
  });
}

/** The same call with these entries only, numbered anew. */
function formOf(body: string, kept: readonly BatchEntry[]): string {
  const fields = [...new URLSearchParams(body)].flatMap(([name, value]): [string, string][] => {
    const [, prefix, member, rest] = MEMBER.exec(name) ?? [];
    if (prefix === undefined) return [[name, value]];
    const place = kept.findIndex((entry) => entry.member === member);
    return place < 0 ? [] : [[`${prefix}${place + 1}${rest}`, value]];
  });
  return new URLSearchParams(fields).toString();
}

/** What became of the entries that were not passed on: failed, or, by a broken relay, accepted like all others. */
function withOthers(
  text: string,
  others: readonly BatchEntry[],
  fault: BrokerFault | null,
): string {
  const members = others.map(({ id }) =>
    fault?.kind === "swallowHalf"
      ? `<member><Id>${id}</Id><MessageId>00000000-0000-4000-8000-000000000000</MessageId></member>`
      : `<member><Id>${id}</Id><Code>InternalError</Code><Message>on purpose</Message><SenderFault>false</SenderFault></member>`,
  );
  const list = fault?.kind === "swallowHalf" ? "Successful" : "Failed";
  const opened = text
    .replace(new RegExp(`<${list}\\s*/>`), `<${list}></${list}>`)
    .replace(
      new RegExp(`^(?!.*</${list}>)(.*)</PublishBatchResult>`, "s"),
      `$1<${list}></${list}></PublishBatchResult>`,
    );
  return opened.replace(`</${list}>`, `${members.join("")}</${list}>`);
}

function count(
  { traffic }: ProxyContext,
  entries: readonly BatchEntry[],
  { status, body }: Answer,
): void {
  if (status !== 200) return;
  const failed = /<Failed>(.*?)<\/Failed>/s.exec(body)?.[1] ?? "";
  for (const { id, messageId } of entries) {
    if (failed.includes(`<Id>${id}</Id>`)) continue;
    traffic.publishes.set(messageId, (traffic.publishes.get(messageId) ?? 0) + 1);
  }
}

interface Received {
  readonly Messages?: readonly { readonly Body: string; readonly ReceiptHandle: string }[];
}

async function received(
  handling: Handling,
  answer: Answer,
  fault: BrokerFault | null,
): Promise<Answer> {
  const { traffic } = handling.context;
  const { Messages = [] } = messagesOf(answer);
  if (Messages.length === 0) return answer;
  const passed =
    fault?.kind === "repeatReversed" ? [...Messages, ...Messages].toReversed() : Messages;
  for (const { Body } of passed) {
    const messageId = messageIdOf(Body);
    traffic.deliveries.set(messageId, (traffic.deliveries.get(messageId) ?? 0) + 1);
  }
  if (fault?.kind === "deleteFirst")
    await deleteAll(
      handling,
      Messages.map(({ ReceiptHandle }) => ReceiptHandle),
    );
  if (fault?.kind !== "repeatReversed") return answer;
  // SQS's own limit for an answer is ten.
  return { ...answer, body: JSON.stringify({ Messages: passed.slice(0, 10) }) };
}

async function deleteAll(handling: Handling, handles: readonly string[]): Promise<void> {
  const { incoming } = handling;
  const url = new URL("/", "http://broker");
  const queueUrl = `http://${handling.target.host}:${handling.target.port}${handling.context.traffic.queuePath}`;
  incoming.url = url.pathname;
  incoming.headers["x-amz-target"] = "AmazonSQS.DeleteMessageBatch";
  const Entries = handles.map((ReceiptHandle, index) => ({ Id: String(index), ReceiptHandle }));
  await forward(handling, JSON.stringify({ QueueUrl: queueUrl, Entries }));
}

function hasMessages(answer: Answer): boolean {
  return (messagesOf(answer).Messages ?? []).length > 0;
}

function messagesOf({ status, body }: Answer): Received {
  return status === 200 && body !== "" ? (JSON.parse(body) as Received) : {};
}

/** The CloudEvents id in the body, which is the same on every hop. */
function messageIdOf(body: string | null): string {
  try {
    return String((JSON.parse(body ?? "") as { id?: unknown }).id);
  } catch {
    return "unreadable";
  }
}

async function readAll(stream: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
