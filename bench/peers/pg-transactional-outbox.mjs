// pg-transactional-outbox with its polling listener; messages may go out in parallel, which is its fastest way.
import pg from "pg";
import {
  DatabaseSetup,
  getDisabledLogger,
  initializeMessageStorage,
  initializePollingMessageListener,
} from "pg-transactional-outbox";

const BATCH_SIZE = 100;
const POOL_MAX = 10;
const ROLE = "bench_outbox";
const names = {
  outboxOrInbox: "outbox",
  schema: "public",
  table: "outbox",
  nextMessagesName: "next_outbox_messages",
  listenerRole: ROLE,
};
const logger = getDisabledLogger();

/** @param {{ url: string }} options */
export async function open({ url }) {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  const database = new URL(url).pathname.slice(1);
  await pool.query(DatabaseSetup.dropAndCreateTable({ ...names, database }));
  await pool.query(DatabaseSetup.createPollingFunction({ ...names, database }));
  await pool.query(DatabaseSetup.setupPollingIndexes({ ...names, database }));
  const settings = {
    dbSchema: names.schema,
    dbTable: names.table,
    nextMessagesFunctionName: names.nextMessagesName,
    nextMessagesBatchSize: BATCH_SIZE,
    nextMessagesPollingIntervalInMs: 25,
    enableMaxAttemptsProtection: true,
    enablePoisonousMessageProtection: true,
  };
  const config = {
    outboxOrInbox: names.outboxOrInbox,
    dbListenerConfig: { connectionString: url },
    dbHandlerConfig: { connectionString: url, max: POOL_MAX },
    settings,
  };
  const store = initializeMessageStorage(config, logger);
  let shutdown;

  return {
    async fill(messages) {
      const client = await pool.connect();
      await client.query("BEGIN");
      for (const message of messages) {
        await store(
          {
            id: message.messageId,
            aggregateType: message.aggregateType,
            aggregateId: message.aggregateId,
            messageType: message.type,
            concurrency: "parallel",
            payload: JSON.parse(message.payload),
            metadata: { headers: message.headers, version: message.aggregateVersion },
          },
          client,
        );
      }
      await client.query("COMMIT");
      client.release();
      await pool.query("ANALYZE outbox");
    },
    /** A message is a transaction; `sendOne` gathers what runs at the same time into calls of ten. */
    async drain({ sendOne, done }) {
      const handle = async (message) =>
        await sendOne({
          messageId: message.id,
          aggregateType: message.aggregateType,
          aggregateId: message.aggregateId,
          aggregateVersion: message.metadata.version,
          type: message.messageType,
          payload: JSON.stringify(message.payload),
          headers: message.metadata.headers,
        });
      [shutdown] = initializePollingMessageListener(config, { handle }, logger, {
        // Its own strategy takes one message at a time for the first hundred.
        batchSizeStrategy: async () => await Promise.resolve(BATCH_SIZE),
      });
      await done;
    },
    async settle() {
      await shutdown();
    },
    async empty() {
      await pool.query("TRUNCATE outbox");
    },
    async close() {
      await pool.end();
    },
  };
}
