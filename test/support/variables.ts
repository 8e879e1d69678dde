import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Names that Temporal's and AWS's own libraries read, of those that our pages and files use. */
const READ_BY_LIBRARIES =
  /^(AWS_(PROFILE|ACCESS_KEY_ID|SECRET_ACCESS_KEY)|TEMPORAL_API_KEY|TEMPORAL_TLS(_(CLIENT_CERT|CLIENT_KEY|SERVER_CA_CERT)_(PATH|DATA)|_SERVER_NAME)?)$/;

/** The variables of docs/configuration.md, which a test holds against what is read. */
export function documentedVariables(): string[] {
  const page = readFileSync(join(__dirname, "../../docs/configuration.md"), "utf8");
  return [...page.matchAll(/^\| `([A-Z_]+)` +\|/gm)].map(([, name = ""]) => name);
}

/** Whether anything reads a variable of this name. */
export function isVariable(name: string): boolean {
  return READ_BY_LIBRARIES.test(name) || documentedVariables().includes(name);
}
