import { join } from "node:path";
import { createDatabase, startPostgres } from "../../src/local/postgres.ts";

/** A PostgreSQL of a test's own, in the folder that is named; ends with the process that started it. */
const [dir = ""] = process.argv.slice(2);
const postgres = await startPostgres({
  dir: join(dir, "data"),
  password: "test",
  logFile: join(dir, "postgres.log"),
  settings: { max_connections: "60" },
});
process.once("disconnect", () => void postgres.stop());
process.send?.(await createDatabase(postgres.adminDatabaseUrl, "remit"));
