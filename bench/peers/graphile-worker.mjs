// graphile-worker with the settings of its chapter on performance: a local queue and completions in batches.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const TASK = "event";
const CONCURRENCY = 100;
const POOL_MAX = 10;
const INSERT_SIZE = 1_000;
const logger = new Logger(() => () => undefined);

/** @param {{ url: string }} options */
export async function open({ url }) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  let runner;

  return {
    async fill(messages) {
      for (let start = 0; start < messages.length; start += INSERT_SIZE) {
        const jobs = messages.slice(start, start + INSERT_SIZE);
        await utils.addJobs(jobs.map((payload) => ({ identifier: TASK, payload })));
      }
    },
    /** A job is one event; `sendOne` gathers what runs at the same time into calls of ten. */
    async drain({ sendOne, done }) {
      runner = await run({
        logger,
        preset: {
          worker: {
            connectionString: url,
            maxPoolSize: POOL_MAX,
            concurrentJobs: CONCURRENCY,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
          },
        },
        noHandleSignals: true,
        taskList: { [TASK]: async (payload) => await sendOne(payload) },
      });
      await done;
    },
    async settle() {
      await runner.stop();
    },
    async empty() {
      await utils.withPgClient(async (client) => {
        await client.query("TRUNCATE graphile_worker._private_jobs");
      });
    },
    async close() {
      await utils.release();
    },
  };
}
