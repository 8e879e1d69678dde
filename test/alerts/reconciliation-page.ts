import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { verify } from "../../src/database/invariants.ts";
import type { Database } from "../../src/database/database.ts";

/** A target that reconciles the books at each scrape and tells what the rules ask for, of the books as they are. */
export interface ReconciliationPage {
  readonly address: string;
  readonly close: () => Promise<void>;
}

export async function startReconciliationPage(database: Database): Promise<ReconciliationPage> {
  const server = createServer((_request, answer) => {
    void pageOf(database).then(
      (text) => answer.writeHead(200, { "content-type": "text/plain; version=0.0.4" }).end(text),
      () => answer.writeHead(500).end(),
    );
  });
  server.listen({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

async function pageOf(database: Database): Promise<string> {
  const { invariants } = await verify(database, { graceSeconds: 60 });
  const findings = invariants.map(
    ({ number, violations }) => `remit_findings_open{invariant="${number}"} ${violations}`,
  );
  return [
    ...findings,
    `remit_reconciliation_finished_timestamp_seconds{scope="all"} ${Date.now() / 1_000}`,
    `remit_reconciliation_ok{scope="all"} 1`,
    "",
  ].join("\n");
}
