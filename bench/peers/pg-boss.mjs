// pg-boss as its documentation has it for a backlog: batches, fetched without a pause while they come back full.
import { PgBoss } from "pg-boss";

const QUEUE = "events";
const BATCH_SIZE = 100;
/** Workers of this process, each with a batch of its own. */
const WORKERS = 3;
const POOL_MAX = 10;
const INSERT_SIZE = 1_000;

/** @param {{ url: string }} options */
export async function open({ url }) {
  const boss = new PgBoss({
    connectionString: url,
    max: POOL_MAX,
    supervise: false,
    schedule: false,
  });
  boss.on("error", (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  await boss.start();
  await boss.createQueue(QUEUE);

  return {
    async fill(messages) {
      for (let start = 0; start < messages.length; start += INSERT_SIZE) {
        const jobs = messages.slice(start, start + INSERT_SIZE).map((data) => ({ data }));
        await boss.insert(QUEUE, jobs);
      }
    },
    /** Hands whole batches to `send` until `done` resolves. */
    async drain({ send, done }) {
      await boss.work(
        QUEUE,
        {
          batchSize: BATCH_SIZE,
          localConcurrency: WORKERS,
          pollingIntervalSeconds: 0.5,
          burstWhenBatchFull: true,
        },
        async (jobs) => {
          await send(jobs.map(({ data }) => data));
        },
      );
      await done;
    },
    async settle() {
      await boss.offWork(QUEUE, { wait: true });
    },
    async empty() {
      await boss.deleteAllJobs(QUEUE);
    },
    async close() {
      await boss.stop({ graceful: false });
    },
  };
}
