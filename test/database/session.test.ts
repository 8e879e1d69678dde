import { createDatabase } from "../../src/database/database.ts";
import type { Database } from "../../src/database/database.ts";
import { useDatabase } from "../support/database.ts";

/** What a session asks for holds, whatever role, database or the URL's own options say. */

const database = useDatabase();
const HOSTILE = {
  synchronous_commit: "off",
  default_transaction_isolation: "'repeatable read'",
  default_transaction_read_only: "on",
  datestyle: "'SQL, DMY'",
  intervalstyle: "'sql_standard'",
};
const PINNED = {
  synchronous_commit: "on",
  default_transaction_isolation: "read committed",
  default_transaction_read_only: "off",
  datestyle: expect.stringMatching(/^ISO, /),
  intervalstyle: "postgres",
};
let opened: Database;

beforeAll(async () => {
  const { username, pathname } = new URL(database().url);
  for (const [name, value] of Object.entries(HOSTILE)) {
    await database().admin(`ALTER ROLE ${username} SET ${name} = ${value}`);
    await database().admin(`ALTER DATABASE ${pathname.slice(1)} SET ${name} = ${value}`);
  }
});
afterEach(async () => {
  await opened.close();
});

async function settings(url: string): Promise<Record<string, string>> {
  opened = createDatabase({ url, poolMax: 1, applicationName: "test" });
  const names = [...Object.keys(PINNED), "work_mem"];
  const { rows } = await opened.pool.query<{ name: string; setting: string }>(
    "SELECT name, current_setting(name) AS setting FROM unnest($1::text[]) name",
    [names],
  );
  return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]));
}

test("durability, isolation, writes and formats are what Remit needs", async () => {
  expect(await settings(database().url)).toMatchObject(PINNED);
});

test("the URL's own options hold beside them, and not against them", async () => {
  const url = new URL(database().url);
  url.searchParams.set("options", "-c work_mem=9MB -c synchronous_commit=off");
  expect(await settings(url.href)).toMatchObject({ ...PINNED, work_mem: "9MB" });
});
