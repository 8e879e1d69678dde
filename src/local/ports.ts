import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";

/** Where the parts of the stack listen, on loopback. */
export interface Ports {
  readonly postgres: number;
  readonly temporal: number;
  readonly temporalUi: number;
  readonly broker: number;
}

const USUAL: Ports = { postgres: 54320, temporal: 7233, temporalUi: 8233, broker: 4566 };

/** The ports of a data folder: those of its last run where they are free, else the usual ones, else the kernel's choice. */
export async function choosePorts(file: string): Promise<Ports> {
  const preferred = { ...USUAL, ...remembered(file) };
  const ports: Ports = {
    postgres: await freePort(preferred.postgres),
    temporal: await freePort(preferred.temporal),
    temporalUi: await freePort(preferred.temporalUi),
    broker: await freePort(preferred.broker),
  };
  writeFileSync(file, `${JSON.stringify(ports, null, 2)}\n`);
  return ports;
}

/** `preferred` if nothing listens there, else a port of the kernel's choice. */
export async function freePort(preferred = 0): Promise<number> {
  const port = await tryPort(preferred);
  if (port !== null) return port;

  const any = await tryPort(0);
  if (any === null) throw new Error("the kernel gives no free port on 127.0.0.1");
  return any;
}

async function tryPort(port: number): Promise<number | null> {
  const server = createServer();
  return await new Promise((resolve) => {
    server.once("error", () => resolve(null));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => {
      const address = server.address();
      server.close(() => {
        resolve(typeof address === "object" && address !== null ? address.port : null);
      });
    });
  });
}

// A file that can't be read means only that other ports are chosen.
function remembered(file: string): Partial<Ports> {
  try {
    const found = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const known = Object.keys(USUAL).filter((name) => isPort(found[name]));
    return Object.fromEntries(known.map((name) => [name, found[name] as number]));
  } catch {
    return {};
  }
}

function isPort(value: unknown): boolean {
  return Number.isInteger(value) && Number(value) > 0 && Number(value) < 65_536;
}
