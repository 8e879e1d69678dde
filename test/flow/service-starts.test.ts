import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTemporal } from "../../src/local/temporal.ts";
import { testServices } from "../support/services.ts";

jest.setTimeout(60_000);
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "remit-starts-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** Temporal's server, which ends at once for the first so many starts, as it does where another took its port. */
function serverThatFails(times: number): string {
  const file = join(dir, "temporal");
  const script = `#!/bin/sh
echo start >> ${dir}/starts
if [ "$(wc -l < ${dir}/starts)" -le ${times} ]; then echo "bind: address already in use"; exit 1; fi
exec ${testServices().REMIT_TEST_TEMPORAL_BINARY} "$@"
`;
  writeFileSync(file, script, { mode: 0o755 });
  return file;
}

describe("a service whose port was taken between choice and use", () => {
  test("is started again", async () => {
    const logFile = join(dir, "temporal.log");
    const server = await startTemporal({ binary: serverThatFails(2), logFile });
    await server.stop();
    expect(server.address).toMatch(/^127\.0\.0\.1:\d+$/);
  });

  test("isn't for ever: the error says how it ended", async () => {
    const logFile = join(dir, "temporal.log");
    await expect(startTemporal({ binary: serverThatFails(9), logFile })).rejects.toThrow(
      `see ${logFile}, which ends with: bind: address already in use`,
    );
  });
});
