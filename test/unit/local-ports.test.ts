import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { choosePorts, freePort } from "../../src/local/ports.ts";

let file: string;
beforeEach(() => {
  file = join(mkdtempSync(join(tmpdir(), "remit-ports-")), "ports.json");
});
afterEach(() => rmSync(join(file, ".."), { recursive: true, force: true }));

async function occupied<Result>(port: number, use: () => Promise<Result>): Promise<Result> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  try {
    return await use();
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

describe("choosePorts", () => {
  test("takes the remembered ports again", async () => {
    const remembered = {
      postgres: await freePort(),
      temporal: await freePort(),
      temporalUi: await freePort(),
      broker: await freePort(),
    };
    writeFileSync(file, JSON.stringify(remembered));

    expect(await choosePorts(file)).toEqual(remembered);
  });

  test("takes another port where the remembered one is in use, and remembers that", async () => {
    const taken = await freePort();
    writeFileSync(file, JSON.stringify({ broker: taken }));

    const chosen = await occupied(taken, async () => await choosePorts(file));

    expect(chosen.broker).not.toBe(taken);
    expect(await choosePorts(file)).toEqual(chosen);
  });

  test("passes over a file that can't be read", async () => {
    writeFileSync(file, "{");

    expect(Object.values(await choosePorts(file))).toHaveLength(4);
  });
});
