import { Server } from "node:net";
import { startFauxqs } from "fauxqs";

/** The SNS/SQS emulator as a process of its own: `broker-main.ts <port> [<data folder>]`. Says `{ port }` when it serves. */

/**
 * The emulator binds every interface and has no option for it. Whatever this process listens on is on loopback:
 * nobody else in the network can publish a payment event.
 */
function listenOnLoopbackOnly(): void {
  const listen = Reflect.get(Server.prototype, "listen") as (...args: unknown[]) => Server;
  Server.prototype.listen = function listenOnLoopback(this: Server, ...args: unknown[]): Server {
    const [first, ...others] = args;
    const options = typeof first === "object" ? { ...first } : { port: first };
    return listen.call(this, { ...options, host: "127.0.0.1" }, ...others);
  };
}

/**
 * The emulator names queues `http://sqs.us-east-1.localhost:…`, a host that many resolvers don't know. It reads only the
 * path of a queue's URL, so ours names the address that it listens on.
 */
async function nameQueuesByAddress(): Promise<void> {
  const url = new URL("./sqs/sqsStore.js", import.meta.resolve("fauxqs")).href;
  const { SqsStore } = (await import(url)) as { SqsStore: { prototype: object } };
  Reflect.set(
    SqsStore.prototype,
    "buildQueueUrl",
    (queueName: string, port: string) => `http://127.0.0.1:${port}/${ACCOUNT_ID}/${queueName}`,
  );
}

const ACCOUNT_ID = "000000000000";

listenOnLoopbackOnly();
await nameQueuesByAddress();
const [port, dataDir] = process.argv.slice(2);
const server = await startFauxqs({
  port: Number(port),
  logger: false,
  ...(dataDir === undefined ? {} : { dataDir }),
});

let stopping = false;
async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  await server.stop();
  process.exit(0);
}
process.on("SIGTERM", () => void stop());
// The parent died: nobody is left who would stop this process.
process.on("disconnect", () => void stop());
process.send?.({ port: server.port });
