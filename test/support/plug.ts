import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";

/** A way to a server that can be cut: connections through `port` reach the target until it is pulled or muted. */
export interface Plug {
  readonly port: number;
  /** Ends all connections and refuses new ones. */
  pull(): Promise<void>;
  /** Keeps connections and takes new ones, and passes nothing on. */
  mute(): void;
  /** Leaves the connections of this moment as dead as a lost peer leaves them, without a word; new ones pass. */
  halfOpen(): void;
  /** Undoes the first two. */
  mend(): Promise<void>;
  close(): Promise<void>;
}

export async function plugInto(target: { host: string; port: number }): Promise<Plug> {
  const sockets = new Set<Socket>();
  const deaf = new Set<Socket>();
  let isMute = false;
  const server = createServer((near) => {
    const far = connect(target);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on("data", (chunk) => isMute || deaf.has(from) || to.write(chunk));
      from.on("error", () => to.destroy());
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  const listen = async (port: number): Promise<void> => {
    server.listen({ host: "127.0.0.1", port });
    await once(server, "listening");
  };
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const pull = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, "close");
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    port,
    pull,
    mute: () => {
      isMute = true;
    },
    halfOpen: () => {
      for (const socket of sockets) deaf.add(socket);
    },
    mend: async () => {
      isMute = false;
      // What was swallowed is gone: a connection that missed a part of it is of no use.
      for (const socket of sockets) socket.destroy();
      if (!server.listening) await listen(port);
    },
    close: pull,
  };
}
