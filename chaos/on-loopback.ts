import { once } from "node:events";
import type { AddressInfo, Server } from "node:net";
import type { Proxy } from "./traffic.ts";

/** Lets a proxy listen on a port of the kernel's choice; closed, it ends what is connected by `endAll`. */
export async function onLoopback(server: Server, endAll: () => void): Promise<Proxy> {
  server.listen({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      const closed = once(server, "close");
      server.close();
      endAll();
      await closed;
    },
  };
}
