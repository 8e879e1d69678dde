import { getTableConfig } from "drizzle-orm/pg-core";
import type { PgTable } from "drizzle-orm/pg-core";
import * as schema from "../../src/database/schema.ts";
import { useDatabase } from "../support/database.ts";

const database = useDatabase();

test("the typed schema has exactly the tables, columns and nullability of the database", async () => {
  const rows = await database().admin<{ table: string; column: string; nullable: boolean }>(
    `SELECT table_name AS "table", column_name AS "column", is_nullable = 'YES' AS nullable
       FROM information_schema.columns
      WHERE table_schema = 'remit' AND table_name <> 'migrations'`,
  );
  const inDatabase = rows.map(
    ({ table, column, nullable }) => `${table}.${column}${nullable ? "?" : ""}`,
  );
  const { remitSchema: _, ...tables } = schema;
  const inCode = Object.values(tables).flatMap((table) => {
    const { name, columns } = getTableConfig(table as PgTable);
    return columns.map((column) => `${name}.${column.name}${column.notNull ? "" : "?"}`);
  });
  expect(inCode.toSorted()).toEqual(inDatabase.toSorted());
});

test("every constraint, index and trigger is named after its table", async () => {
  const rows = await database().admin<{ table: string; name: string }>(
    `SELECT conrelid::regclass::text AS "table", conname AS name FROM pg_constraint
      WHERE connamespace = 'remit'::regnamespace AND contype <> 'n'
      UNION ALL
     SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'remit'
      UNION ALL
     SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal`,
  );
  const strays = rows.filter(({ table, name }) => !name.startsWith(table.replace("remit.", "")));
  expect(strays).toEqual([]);
});

test("money is bigint, time is timestamptz, text that the application writes has a check", async () => {
  const rows = await database().admin<{ column: string; type: string }>(
    `SELECT table_name || '.' || column_name AS column, data_type AS type
       FROM information_schema.columns
      WHERE table_schema = 'remit' AND table_name <> 'migrations'
        AND (column_name ~ '(amount|posted|held|remaining|overdraft|balance_after)$' AND data_type <> 'bigint'
          OR column_name ~ '_at$' AND data_type <> 'timestamp with time zone')`,
  );
  expect(rows).toEqual([]);
});
