import { createServer } from "node:http";
import type { Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "../domain/errors.ts";
import type { MetricsPage } from "./metrics-page.ts";

/** What one check found; `reason` is for a person, holds no secret, and stands there when all is well, too. */
export interface CheckResult {
  readonly ok: boolean;
  readonly reason: string;
}

/** One thing without which this process is of no use. */
export interface HealthCheck {
  readonly name: string;
  readonly check: () => CheckResult | Promise<CheckResult>;
}

export interface HealthServerOptions {
  readonly address: string;
  /** 0: the kernel chooses. */
  readonly port: number;
  /** Asked at each request, so that a process may come to have more of them while it starts. */
  readonly checks: () => readonly HealthCheck[];
  readonly metrics: MetricsPage;
}

export interface HealthServer {
  readonly url: string;
  readonly close: () => Promise<void>;
}

/** Longer than a database or a Temporal that is well ever takes; shorter than what a prober waits. */
const CHECK_MS_MAX = 2_000;

/**
 * Answers `/livez` (the event loop turns; no dependency is asked, since a restart mends none) and `/readyz` (200 where
 * every check holds, else 503; one entry a check either way) and `/metrics` (for Prometheus, whatever is away).
 *
 * @throws DomainError `usage` where it can't listen there
 */
export async function startHealthServer(options: HealthServerOptions): Promise<HealthServer> {
  const server = createServer((request, response) => {
    const path = request.url?.split("?")[0];
    if (request.method !== "GET" && request.method !== "HEAD") answer(response, 405, NOT_ALLOWED);
    else if (path === "/livez") answer(response, 200, { ok: true });
    else if (path === "/readyz") void answerReadiness(response, options.checks());
    else if (path === "/metrics") void answerScrape(response, options.metrics);
    else answer(response, 404, { ok: false, reason: "expected /livez, /readyz or /metrics" });
  });
  await listen(server, options);
  const { address, port, family } = server.address() as AddressInfo;
  return {
    url: `http://${family === "IPv6" ? `[${address}]` : address}:${port}`,
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

const NOT_ALLOWED = { ok: false, reason: "expected GET" };

/**
 * Keeps what a check found for a moment and lets those who ask at the same time share one look, so that however many
 * probers there are, a dependency is asked about once a second.
 */
export function keptFor(maxAgeMs: number, { name, check }: HealthCheck): HealthCheck {
  let kept: { readonly result: Promise<CheckResult>; readonly atMs: number } | undefined;
  return {
    name,
    check: async () => {
      if (kept === undefined || Date.now() - kept.atMs > maxAgeMs) {
        kept = { result: resultOf({ name, check }), atMs: Date.now() };
      }
      return await kept.result;
    },
  };
}

async function answerReadiness(
  response: ServerResponse,
  checks: readonly HealthCheck[],
): Promise<void> {
  const found = await Promise.all(
    checks.map(async (check) => ({ name: check.name, ...(await resultOf(check)) })),
  );
  const ok = found.every((result) => result.ok);
  answer(response, ok ? 200 : 503, { ok, checks: found });
}

async function answerScrape(
  response: ServerResponse,
  { contentType, text }: MetricsPage,
): Promise<void> {
  try {
    const page = await text();
    response.writeHead(200, { "content-type": contentType, "cache-control": "no-store" });
    response.end(page);
  } catch (error) {
    const name = error instanceof Error ? error.name : "?";
    answer(response, 500, { ok: false, reason: `the page can't be written: ${name}` });
  }
}

/** Never throws and never waits longer than its bound; an error's text stays out, since it may quote an address. */
export async function resultOf({ check }: HealthCheck): Promise<CheckResult> {
  const late = new AbortController();
  try {
    return await Promise.race([
      (async () => await check())(),
      delay(CHECK_MS_MAX, TOO_LATE, { signal: late.signal, ref: false }),
    ]);
  } catch (error) {
    return { ok: false, reason: `the check failed: ${error instanceof Error ? error.name : "?"}` };
  } finally {
    late.abort();
  }
}

const TOO_LATE: CheckResult = { ok: false, reason: `no answer within ${CHECK_MS_MAX} ms` };

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, {
    "content-type": "application/json; charset=utf-8",
    "cache-control": "no-store",
  });
  response.end(`${JSON.stringify(body)}\n`);
}

async function listen(
  server: Server,
  { address, port }: Pick<HealthServerOptions, "address" | "port">,
): Promise<void> {
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ host: address, port }, resolve);
    });
  } catch (cause) {
    const { code = "?" } = cause as NodeJS.ErrnoException;
    throw new DomainError(
      "usage",
      `expected to answer health probes at ${address}:${port}, found that it can't be listened on (${code}): ` +
        "choose another with --health-port, REMIT_HEALTH_PORT or REMIT_HEALTH_ADDRESS",
      { cause },
    );
  }
}
