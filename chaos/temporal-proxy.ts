import { once } from "node:events";
import { connect, constants, createServer } from "node:http2";
import type {
  ClientHttp2Session,
  Http2Stream,
  IncomingHttpHeaders,
  ServerHttp2Session,
  ServerHttp2Stream,
} from "node:http2";
import { setTimeout as delay } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import type { Step } from "./failpoints.ts";
import { onLoopback } from "./on-loopback.ts";
import type { Proxy, ProxyContext } from "./traffic.ts";

/** A reverse proxy for gRPC between a worker and Temporal; all calls are unary, so each is held and passed on whole. */
export async function startTemporalProxy(
  target: { host: string; port: number },
  context: ProxyContext,
): Promise<Proxy> {
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer({ settings: SETTINGS });
  server.on("session", (session) => {
    sessions.add(session);
    const upward = upwardOf(session, `http://${target.host}:${target.port}`);
    session.on("error", () => undefined);
    session.on("close", () => sessions.delete(session));
    session.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      stream.on("error", () => undefined);
      handle(stream, headers, { upward, context }).catch(() => cancel(stream));
    });
  });
  server.on("error", () => undefined);
  return await onLoopback(server, () => {
    for (const session of sessions) session.destroy();
  });
}

/**
 * The connection to Temporal behind a worker's. Temporal retires each after five minutes (GOAWAY): calls under way end on the
 * old one, which may take a minute, and new ones get another. Where it breaks, the worker's breaks, too.
 */
function upwardOf(session: ServerHttp2Session, authority: string): () => ClientHttp2Session {
  const open = (): ClientHttp2Session => {
    const opened = connect(authority, { settings: SETTINGS });
    let isRetired = false;
    opened.on("goaway", () => {
      isRetired = true;
      if (current === opened) current = null;
    });
    opened.on("error", () => undefined);
    const end = (): void => opened.destroy();
    session.once("close", end);
    opened.once("close", () => {
      session.off("close", end);
      if (!isRetired) session.destroy();
    });
    return opened;
  };
  let current: ClientHttp2Session | null = open();
  return () => (current ??= open());
}

const SETTINGS = { maxConcurrentStreams: 10_000, initialWindowSize: 1 << 20 };

interface Passage {
  readonly upward: () => ClientHttp2Session;
  readonly context: ProxyContext;
}

async function handle(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  { upward, context }: Passage,
): Promise<void> {
  const body = await readAll(stream);
  const method = String(headers[":path"]).split("/").at(-1) ?? "";
  const { traffic, workerName, reach } = context;
  const fault = traffic.temporalFault({ workerName, method, message: messageOf(body) });
  if (fault?.kind === "delay") await delay(fault.ms);
  if (fault?.kind === "refuse") return refuse(stream, fault.grpcStatus);
  const step = stepOf(context, method);
  if (step !== null && (await reach("before", step)) === "drop") return cancel(stream);

  const answer = await ask(upward(), { stream, headers, body });
  if (step !== null && (await reach("after", step)) === "drop") return cancel(stream);
  if (fault?.kind === "lostAnswer" || stream.destroyed) return cancel(stream);
  if (answer.isTrailersOnly) return stream.respond(answer.headers, { endStream: true });
  stream.respond(answer.headers, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers(answer.trailers));
  stream.end(answer.body);
}

interface GrpcAnswer {
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly isTrailersOnly: boolean;
}

async function ask(
  upward: ClientHttp2Session,
  {
    stream,
    headers,
    body,
  }: { stream: ServerHttp2Stream; headers: IncomingHttpHeaders; body: Buffer },
): Promise<GrpcAnswer> {
  const { connection: _, host: __, ...kept } = headers;
  const outward = upward.request(kept, { endStream: false });
  // A poll that the worker gave up must not take a task along.
  stream.once("close", () => outward.close(constants.NGHTTP2_CANCEL));
  let trailers: IncomingHttpHeaders = {};
  outward.on("trailers", (given) => (trailers = given));
  const responded = once(outward, "response") as Promise<[IncomingHttpHeaders]>;
  outward.end(body);
  const [given] = await responded;
  const answered = await readAll(outward);
  if (outward.rstCode !== 0) throw new Error(`the stream ended with ${outward.rstCode}`);
  return {
    headers: given,
    trailers,
    body: answered,
    isTrailersOnly: given["grpc-status"] !== undefined,
  };
}

function stepOf({ role }: ProxyContext, method: string): Step | null {
  if (role !== "ledger") return null;
  if (method === "SignalWorkflowExecution") return "signal";
  return method === "StartWorkflowExecution" ? "start" : null;
}

/** The one message of a unary call; its first byte says whether it is compressed, four more how long it is. */
function messageOf(body: Buffer): Buffer {
  const message = body.subarray(5);
  return body[0] === 1 ? gunzipSync(message) : message;
}

function refuse(stream: ServerHttp2Stream, grpcStatus: number): void {
  stream.respond(
    {
      ":status": 200,
      "content-type": "application/grpc",
      "grpc-status": String(grpcStatus),
      "grpc-message": "on purpose",
    },
    { endStream: true },
  );
}

function cancel(stream: ServerHttp2Stream): void {
  if (!stream.destroyed) stream.close(constants.NGHTTP2_CANCEL);
}

/** By events: an iterator would destroy a stream that has still to be answered. */
async function readAll(stream: Http2Stream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  await new Promise<void>((resolve, reject) => {
    stream.once("end", resolve);
    stream.once("error", reject);
    stream.once("close", () => reject(new Error("the stream was closed")));
  });
  return Buffer.concat(chunks);
}
