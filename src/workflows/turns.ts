/** Runs one piece of work at a time, in the order in which they were asked for. */
export type Turns = <Result>(work: () => Promise<Result>) => Promise<Result>;

/**
 * The database steps of a run must not overlap where handlers and the main function make them: two local activities that
 * end in one activation go on in the order of their ends, and on replay in the order of their starts, which is another
 * order of commands (temporalio/sdk-python#1578; met in a test of ours).
 */
export function createTurns(): Turns {
  let last: Promise<unknown> = Promise.resolve();
  return async (work) => {
    const mine = last.then(work, work);
    last = mine.catch(() => undefined);
    return await mine;
  };
}
