import type { WhereWeAre } from "../../database/doctor-queries.ts";

/** A setting of PostgreSQL that must be otherwise, and where PostgreSQL says that it comes from. */
export interface WrongSetting {
  readonly name: string;
  readonly to: string;
  readonly source: string;
}

/** A role's or a database's setting holds from the next login on; the workers' pools keep their connections. */
export const THEN_RESTART = "; then restart the workers";

/** What mends it where it was set: one that is mended elsewhere stays as it is. */
export function settingFix(
  { name, to, source }: WrongSetting,
  { role, database }: Pick<WhereWeAre, "role" | "database">,
): string {
  switch (source) {
    case "database user":
      return `ALTER ROLE ${role} IN DATABASE ${database} RESET ${name}${THEN_RESTART}`;
    case "user":
      return `ALTER ROLE ${role} RESET ${name}${THEN_RESTART}`;
    case "database":
      return `ALTER DATABASE ${database} RESET ${name}${THEN_RESTART}`;
    case "client":
    case "session":
      return `remove ${name} from DATABASE_URL or the pooler's connect_query`;
    case "command line":
      return `start PostgreSQL without ${name} on its command line`;
    default:
      return `ALTER SYSTEM SET ${name} = '${to}'; SELECT pg_reload_conf()`;
  }
}
