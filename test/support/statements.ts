import type { Pool, PoolClient } from "pg";
import { inTransaction } from "../../src/database/database.ts";
import type { Database } from "../../src/database/database.ts";

/** What PostgreSQL gets; BEGIN, COMMIT and ROLLBACK bear their own names. */
export interface SentStatement {
  readonly name: string;
  readonly text: string;
}

/** Runs in place of a statement; `send` sends it, with another text where one is given. */
export type AroundStatement = (
  statement: SentStatement,
  send: (text?: string) => Promise<unknown>,
) => Promise<unknown>;

/** The same database, with `around` called for whatever its transactions send. A lone statement gets a transaction, too. */
export function aroundStatements(database: Database, around: AroundStatement): Database {
  const connect = async (): Promise<PoolClient> => watched(await database.pool.connect(), around);
  const pool: Pool = new Proxy(database.pool, {
    get: (target, property) => (property === "connect" ? connect : memberOf(target, property)),
  });
  const wrapped: Database = {
    ...database,
    pool,
    run: async (statement, values) =>
      await inTransaction(wrapped, async (tx) => await tx.run(statement, values)),
  };
  return wrapped;
}

/** The names of what an operation sends, in order. */
export async function statementsOf(
  database: Database,
  operation: (database: Database) => Promise<unknown>,
): Promise<string[]> {
  const names: string[] = [];
  const recording = aroundStatements(database, async ({ name }, send) => {
    names.push(name);
    return await send();
  });
  await operation(recording);
  return names;
}

/** A planted fault: the same database, where this statement goes out with a part of its text replaced. */
export function withFault(
  database: Database,
  { statement, part, by }: { statement: string; part: string; by: string },
): Database {
  return aroundStatements(database, async ({ name, text }, send) => {
    if (name !== statement) return await send();
    if (!text.includes(part)) throw new Error(`${statement} has no ${JSON.stringify(part)}`);
    return await send(text.replaceAll(part, by));
  });
}

/** A changed text goes out without its name: under that, the connection may have prepared the right one. */
function watched(client: PoolClient, around: AroundStatement): PoolClient {
  const query = async (
    config: string | (SentStatement & { values: unknown[] }),
  ): Promise<unknown> => {
    if (typeof config === "string") {
      return await around(
        { name: config, text: config },
        async () => await client.query({ text: config }),
      );
    }
    const { values } = config;
    return await around(
      config,
      async (text) => await client.query(text === undefined ? config : { text, values }),
    );
  };
  return new Proxy(client, {
    get: (target, property) => (property === "query" ? query : memberOf(target, property)),
  });
}

function memberOf(target: object, property: string | symbol): unknown {
  const member: unknown = Reflect.get(target, property);
  return typeof member === "function" ? member.bind(target) : member;
}
