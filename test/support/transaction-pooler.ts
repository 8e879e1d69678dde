import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";

/** A pooler as pgbouncer is in transaction mode: a client has a server's session only for as long as a transaction. */
export interface TransactionPooler {
  /** The same URL, through the pooler. */
  readonly urlOf: (url: string) => string;
  readonly close: () => Promise<void>;
}

const SSL_REQUEST = 80_877_103;
/** What pgbouncer is told to ignore, since it can't hold a client's own time limits. */
const SWALLOWED = /^(statement_timeout|lock_timeout|idle_in_transaction_session_timeout)$/;
/** Fewer than clients, so that they must share. */
const SESSIONS_MAX = 2;

/** Each client logs in through a session of its own; what is more than two is then closed, and the two go from hand to hand. */
export async function startTransactionPooler(target: string): Promise<TransactionPooler> {
  const { hostname, port } = new URL(target);
  const pool = new Pool();
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): Socket => {
    sockets.add(socket);
    // The other side ends it, and says so there.
    socket.on("error", () => undefined);
    return socket;
  };
  const server = createServer((socket) => {
    new PooledClient(keep(socket), {
      pool,
      open: () => new Session(keep(connect(Number(port), hostname))),
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    urlOf: (url) => {
      const through = new URL(url);
      through.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
      return through.href;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Who is free, the one that was used last first, and who waits. */
class Pool {
  readonly #idle: Session[] = [];
  readonly #waiting: ((session: Session) => void)[] = [];
  #count = 0;

  /** A new one stays where there is room for it. */
  add(session: Session): void {
    if (this.#count === SESSIONS_MAX) return session.end();
    this.#count += 1;
    this.put(session);
  }

  put(session: Session): void {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#idle.push(session);
    else waiting(session);
  }

  take(use: (session: Session) => void): void {
    const session = this.#idle.pop();
    if (session === undefined) this.#waiting.push(use);
    else use(session);
  }
}

/** A connection to the server. What it says while nobody has it, a notification, is lost. */
class Session {
  readonly #socket: Socket;
  onMessage: (message: Buffer) => void = () => undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    const split = messageSplitter(1);
    socket.on("data", (bytes) => {
      for (const message of split(bytes)) this.onMessage(message);
    });
  }

  write(bytes: Buffer): void {
    this.#socket.write(bytes);
  }

  end(): void {
    this.#socket.destroy();
  }
}

class PooledClient {
  readonly #socket: Socket;
  readonly #pool: Pool;
  readonly #unsent: Buffer[] = [];
  #session: Session | null = null;
  #isWaiting = false;

  constructor(socket: Socket, { pool, open }: { pool: Pool; open: () => Session }) {
    this.#socket = socket;
    this.#pool = pool;
    let split = messageSplitter(0);
    socket.on("data", (bytes) => {
      for (const message of split(bytes)) {
        if (this.#session !== null || this.#hasLoggedIn) this.#send(message);
        else if (message.readInt32BE(4) === SSL_REQUEST) socket.write("N");
        else {
          split = messageSplitter(1);
          this.#logIn(open(), message);
        }
      }
    });
  }

  #hasLoggedIn = false;

  #logIn(session: Session, startup: Buffer): void {
    this.#session = session;
    session.onMessage = (message) => {
      if (isReady(message)) {
        this.#hasLoggedIn = true;
        this.#session = null;
        this.#pool.add(session);
      }
      this.#socket.write(message);
    };
    session.write(withoutSwallowed(startup));
  }

  #send(message: Buffer): void {
    // A client that ends leaves its session to the others.
    if (this.#hasLoggedIn && message[0] === "X".charCodeAt(0)) return void this.#socket.end();
    if (this.#session !== null) return this.#session.write(message);
    this.#unsent.push(message);
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#pool.take((session) => this.#use(session));
  }

  #use(session: Session): void {
    this.#isWaiting = false;
    this.#session = session;
    session.onMessage = (message) => {
      if (isReady(message)) {
        session.onMessage = () => undefined;
        this.#session = null;
        this.#pool.put(session);
      }
      this.#socket.write(message);
    };
    for (const message of this.#unsent.splice(0)) session.write(message);
  }
}

/** ReadyForQuery outside of a transaction. */
function isReady(message: Buffer): boolean {
  return message[0] === "Z".charCodeAt(0) && message[5] === "I".charCodeAt(0);
}

/** Cuts a stream into whole messages: before the length there is one byte of type, and none in a start-up message. */
function messageSplitter(typeBytes: number): (bytes: Buffer) => Buffer[] {
  let rest: Buffer = Buffer.alloc(0);
  return (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    const messages: Buffer[] = [];
    for (;;) {
      if (rest.length < typeBytes + 4) return messages;
      const length = typeBytes + rest.readInt32BE(typeBytes);
      if (rest.length < length) return messages;
      messages.push(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
  };
}

function withoutSwallowed(startup: Buffer): Buffer {
  const words = startup.subarray(8).toString("utf8").split("\0");
  const kept: string[] = [];
  for (let at = 0; at + 1 < words.length && words[at] !== ""; at += 2) {
    const [name = "", value = ""] = words.slice(at, at + 2);
    if (!SWALLOWED.test(name)) kept.push(name, value);
  }
  const body = Buffer.from(`${kept.join("\0")}\0\0`);
  const head = Buffer.from(startup.subarray(0, 8));
  head.writeInt32BE(8 + body.length);
  return Buffer.concat([head, body]);
}
