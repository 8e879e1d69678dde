import { once } from "node:events";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { changed, withFailures, withoutEntries } from "./broker-faults.ts";
import type { EntryFailure, Fault } from "./broker-faults.ts";
import { entriesOf, refusalOf } from "./sns-rules.ts";
import type { BatchEntry } from "./sns-rules.ts";
import { isAttributeName, refusalOfSqs, refusedEntriesOf } from "./sqs-rules.ts";
import type { RefusedEntry, SqsRequest } from "./sqs-rules.ts";

export interface Call {
  readonly action: string;
  readonly entries: number;
  /** The most that an entry has. */
  readonly attributes: number;
  /** What was asked for, of a call to SQS. */
  readonly request: SqsRequest;
  readonly atMs: number;
  /** The time of its signature, as in 20261201T130500Z. */
  readonly signedAt: string;
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
    const call = readCall(incoming, await textOf(incoming));
    const { action, entries, request } = call;
    const attributes = Math.max(0, ...entries.map((entry) => entry.attributes.length));
    const signedAt = String(incoming.headers["x-amz-date"]);
    calls.push({
      action,
      entries: entries.length,
      attributes,
      request,
      atMs: Date.now(),
      signedAt,
    });
    const at = faults.findIndex((asked) => asked.action === action);
    const fault = at < 0 ? undefined : faults.splice(at, 1)[0]?.fault;

    if (fault?.kind === "delay") await delay(fault.ms);
    if (fault?.kind === "drop") return void answer.destroy();
    if (fault?.kind === "silence") return;
    const refusal = asRefusal(fault) ?? refusalOfCall(call);
    if (refusal !== null) return refuse(answer, refusal, call.isQuery);
    const failed = fault?.kind === "failEntries" ? fault.failures : undefined;
    const refusedEntries = refusedEntriesOf(action, request);
    const isAllRefused =
      refusedEntries.length > 0 && refusedEntries.length === request.Entries?.length;
    const reply = isAllRefused
      ? { status: 200, contentType: "application/x-amz-json-1.0", text: "{}" }
      : await forward(target, incoming, bodyWithout(call, { failed, refusedEntries }));
    if (fault?.kind === "lostAnswer") return void answer.destroy();
    const text = changed(
      failed === undefined ? reply.text : withFailures(reply.text, entries, failed),
      {
        fault,
        refusedEntries,
      },
    );
    answer.writeHead(reply.status, {
      "content-type": reply.contentType,
      "content-length": Buffer.byteLength(text),
    });
    // Half of the bytes that were promised, and then nothing more.
    if (fault?.kind === "halfAnswer") return void answer.write(text.slice(0, text.length / 2));
    answer.end(text);
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

interface ReadCall {
  readonly action: string;
  readonly isQuery: boolean;
  readonly body: string;
  /** Of SNS. */
  readonly form: URLSearchParams;
  readonly entries: readonly BatchEntry[];
  /** Of SQS. */
  readonly request: SqsRequest;
}

/** SNS speaks the query protocol, SQS JSON 1.0. */
function readCall({ headers }: IncomingMessage, body: string): ReadCall {
  const isQuery = headers["content-type"]?.includes("urlencoded") === true;
  if (!isQuery) {
    const action = String(headers["x-amz-target"]).replace("AmazonSQS.", "");
    const request = JSON.parse(body || "{}") as SqsRequest;
    return { action, isQuery, body, form: new URLSearchParams(), entries: [], request };
  }
  const form = new URLSearchParams(body);
  const action = form.get("Action") ?? "";
  const batch = action === "Publish" ? asBatch(form) : form;
  const entries = action.startsWith("Publish") ? entriesOf(batch) : [];
  return { action, isQuery, body, form: batch, entries, request: {} };
}

/** A single message is held to the rules of a batch of one. */
function asBatch(form: URLSearchParams): URLSearchParams {
  const at = "PublishBatchRequestEntries.member.1.";
  const fields = [...form].map(([name, value]): [string, string] =>
    name.startsWith("Message") ? [`${at}${name}`, value] : [name, value],
  );
  const batch = new URLSearchParams([...fields, [`${at}Id`, "0"]]);
  batch.set("Action", "PublishBatch");
  return batch;
}

interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly queryCode?: string;
  readonly date?: string;
}

function asRefusal(fault: Fault | undefined): Refusal | null {
  if (fault?.kind === "refuse") return fault;
  if (fault?.kind !== "skewedClock") return null;
  const date = new Date(Date.now() + fault.aheadMs).toUTCString();
  return { status: 403, code: "SignatureDoesNotMatch", date };
}

function refusalOfCall({ action, isQuery, form, entries, request }: ReadCall): Refusal | null {
  if (!isQuery) {
    const refused = refusalOfSqs(action, request);
    return refused === null ? null : { status: 400, ...refused };
  }
  const code = refusalOf(form, entries);
  const names = entries.flatMap(({ attributes }) => attributes.map(({ name }) => name));
  if (code === "BatchRequestTooLong" && action === "Publish") {
    return { status: 400, code: "InvalidParameter" };
  }
  if (code !== null) return { status: 400, code };
  return names.every(isAttributeName) ? null : { status: 400, code: "ParameterValueInvalid" };
}

function refuse(answer: ServerResponse, refusal: Refusal, isQuery: boolean): void {
  const { status, code, queryCode = code, date } = refusal;
  const type = status < 500 ? "Sender" : "Receiver";
  const text = isQuery
    ? `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>${type}</Type><Code>${code}</Code><Message>refused</Message></Error><RequestId>r</RequestId></ErrorResponse>`
    : JSON.stringify({ __type: `com.amazonaws.sqs#${code}`, message: "refused" });
  answer.writeHead(status, {
    "content-type": isQuery ? "text/xml" : "application/x-amz-json-1.0",
    ...(isQuery ? {} : { "x-amzn-query-error": `${queryCode};${type}` }),
    ...(date === undefined ? {} : { date }),
  });
  answer.end(text);
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

/** The same call without the entries that fail. */
function bodyWithout(
  { body, form, entries, request }: ReadCall,
  {
    failed,
    refusedEntries,
  }: {
    failed: readonly EntryFailure[] | undefined;
    refusedEntries: readonly RefusedEntry[];
  },
): string {
  if (failed !== undefined)
    return withoutEntries(
      form,
      entries,
      failed.map(({ place }) => place),
    );
  if (refusedEntries.length === 0) return body;
  const refused = new Set(refusedEntries.map(({ Id }) => Id));
  const kept = request.Entries?.filter(({ Id = "" }) => !refused.has(Id));
  return JSON.stringify({ ...request, Entries: kept });
}
