import { connect, createServer } from "node:net";
import type { Socket } from "node:net";
import type { Step } from "./failpoints.ts";
import { onLoopback } from "./on-loopback.ts";
import type { Proxy, ProxyContext } from "./traffic.ts";

/**
 * A proxy that reads PostgreSQL's protocol between a worker and its server and stops at failpoints. It knows the
 * statements by the names that Remit gives them; `COMMIT` belongs to what the transaction did.
 */
export async function startPostgresProxy(
  target: { host: string; port: number },
  context: ProxyContext,
): Promise<Proxy> {
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(target);
    new Session(near, far, context);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
  });
  return await onLoopback(server, () => {
    for (const socket of sockets) socket.destroy();
  });
}

/** What one exchange (until ReadyForQuery) is for. */
interface Exchange {
  step: Step | null;
  /** A claim that finds nothing is no hit. */
  hasRows: boolean;
  held: Buffer[];
}

const STEP_OF_STATEMENT: Readonly<Record<string, Step>> = {
  claim_rows: "claim",
  mark_published: "mark",
};

/** Writes that make a COMMIT one of a payment's record or of a booking. */
const MEANING_OF_STATEMENT: Readonly<Record<string, Step>> = {
  insert_payment: "commit",
  insert_capture: "commit",
  insert_refund: "commit",
  receive_message: "book",
};

class Session {
  readonly #near: Socket;
  readonly #far: Socket;
  readonly #context: ProxyContext;
  /** Exchanges that the server still owes an answer to; the first is the handshake's. */
  readonly #open: Exchange[] = [newExchange()];
  #current: Exchange = newExchange();
  #toSend: Buffer[] = [];
  /** What a COMMIT would mean now. */
  #meaning: Step | null = null;
  #hasStarted = false;

  constructor(near: Socket, far: Socket, context: ProxyContext) {
    this.#near = near;
    this.#far = far;
    this.#context = context;
    void pump(near, async (buffer) => await this.#fromClient(buffer));
    void pump(far, async (buffer) => await this.#fromServer(buffer));
  }

  async #fromClient(buffer: Buffer): Promise<Buffer> {
    let rest = buffer;
    for (;;) {
      const length = this.#hasStarted ? messageLength(rest) : startLength(rest);
      if (length === null) return rest;
      const message = rest.subarray(0, length);
      rest = rest.subarray(length);
      if (!this.#hasStarted) {
        this.#hasStarted = true;
        this.#far.write(message);
      } else await this.#request(message);
    }
  }

  async #request(message: Buffer): Promise<void> {
    const type = String.fromCharCode(message[0] ?? 0);
    let passed = message;
    if (type === "Q") {
      const sql = textAt(message, 5);
      passed = withText(message, 5, this.#context.traffic.rewriteSql(sql));
      if (sql === "COMMIT") {
        this.#current.step = this.#meaning;
        this.#meaning = null;
      }
      if (sql === "ROLLBACK") this.#meaning = null;
    } else if (type === "P") {
      const name = textAt(message, 5);
      const at = 5 + Buffer.byteLength(name) + 1;
      passed = withText(message, at, this.#context.traffic.rewriteSql(textAt(message, at)));
    } else if (type === "B") {
      const portal = textAt(message, 5);
      const name = textAt(message, 5 + Buffer.byteLength(portal) + 1);
      this.#current.step = STEP_OF_STATEMENT[name] ?? this.#current.step;
      this.#meaning = MEANING_OF_STATEMENT[name] ?? this.#meaning;
    }
    this.#toSend.push(passed);
    if (type !== "Q" && type !== "S" && type !== "p" && type !== "X") return;
    const { step } = this.#current;
    if (type === "Q" || type === "S") {
      this.#open.push(this.#current);
      this.#current = newExchange();
    }
    const bytes = Buffer.concat(this.#toSend);
    this.#toSend = [];
    if (step !== null && (await this.#context.reach("before", step)) === "drop") return this.#end();
    if (!this.#far.destroyed) this.#far.write(bytes);
  }

  async #fromServer(buffer: Buffer): Promise<Buffer> {
    let rest = buffer;
    const passed: Buffer[] = [];
    for (;;) {
      const length = messageLength(rest);
      if (length === null) break;
      const message = rest.subarray(0, length);
      rest = rest.subarray(length);
      const type = String.fromCharCode(message[0] ?? 0);
      const exchange = this.#open[0];
      if (exchange === undefined || exchange.step === null) {
        passed.push(message);
        if (type === "Z") this.#open.shift();
        continue;
      }
      exchange.held.push(message);
      // The first column of a claim is the message id: null where there was nothing.
      if (type === "D" && message.readInt32BE(7) !== -1) exchange.hasRows = true;
      if (type !== "Z") continue;
      this.#open.shift();
      const isHit = exchange.step !== "claim" || exchange.hasRows;
      if (isHit && (await this.#context.reach("after", exchange.step)) === "drop") {
        this.#end();
        return rest;
      }
      passed.push(...exchange.held);
    }
    if (passed.length > 0 && !this.#near.destroyed) this.#near.write(Buffer.concat(passed));
    return rest;
  }

  #end(): void {
    this.#near.destroy();
    this.#far.destroy();
  }
}

function newExchange(): Exchange {
  return { step: null, hasRows: false, held: [] };
}

/** Hands what has come to `take`, which answers what it could not use yet; one call at a time. */
async function pump(socket: Socket, take: (buffer: Buffer) => Promise<Buffer>): Promise<void> {
  let rest = Buffer.alloc(0);
  try {
    for await (const chunk of socket) {
      rest = Buffer.from(await take(Buffer.concat([rest, chunk as Buffer])));
    }
  } catch {
    // The connection is gone; its other half ends with it.
  }
}

function messageLength(buffer: Buffer): number | null {
  if (buffer.length < 5) return null;
  const length = buffer.readInt32BE(1) + 1;
  return buffer.length < length ? null : length;
}

/** The first message has no type. */
function startLength(buffer: Buffer): number | null {
  if (buffer.length < 4) return null;
  const length = buffer.readInt32BE(0);
  return buffer.length < length ? null : length;
}

function textAt(message: Buffer, at: number): string {
  return message.toString("utf8", at, message.indexOf(0, at));
}

/** The message with another text in this place, and its length mended. */
function withText(message: Buffer, at: number, text: string): Buffer {
  const end = message.indexOf(0, at);
  if (message.toString("utf8", at, end) === text) return message;
  const changed = Buffer.concat([
    message.subarray(0, at),
    Buffer.from(text),
    message.subarray(end),
  ]);
  changed.writeInt32BE(changed.length - 1, 1);
  return changed;
}
