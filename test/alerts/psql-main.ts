import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Client } from "pg";

/** As much of psql as the runbooks use, for machines that have none: `psql URL --command SQL`, `psql URL --file FILE`. */
const {
  values,
  positionals: [connectionString],
} = parseArgs({
  allowPositionals: true,
  options: { command: { type: "string" }, file: { type: "string" } },
});
const sql = values.command ?? readFileSync(values.file ?? "", "utf8");
const client = new Client({ connectionString });
await client.connect();
try {
  const { rows } = await client.query<Record<string, unknown>>(sql);
  for (const row of rows) process.stdout.write(`${Object.values(row).join(" | ")}\n`);
} finally {
  await client.end();
}
