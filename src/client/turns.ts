/** A place in the queues that a piece of work stands in. */
export interface Turn {
  /** Resolves once everybody who entered before under one of the same names is done. */
  readonly ready: Promise<unknown>;
  /** Lets the next ones go; call it whatever happened. */
  readonly done: () => void;
}

/** Lets work that shares a name go in the order in which it entered, and all else in parallel. */
export function createTurns(): { enter: (names: readonly string[]) => Turn } {
  const lastByName = new Map<string, Promise<void>>();
  return {
    enter(names) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const before = names.flatMap((name) => lastByName.get(name) ?? []);
      for (const name of names) lastByName.set(name, promise);
      return {
        ready: Promise.all(before),
        done: () => {
          // Names are forgotten with their last user, so that a long file's keys don't pile up.
          for (const name of names) {
            if (lastByName.get(name) === promise) lastByName.delete(name);
          }
          resolve();
        },
      };
    },
  };
}

/** A counting semaphore, first come, first served. */
export interface Slots {
  readonly acquire: () => Promise<void>;
  readonly release: () => void;
}

export function createSlots(count: number): Slots {
  const waiting: (() => void)[] = [];
  let free = count;
  return {
    async acquire() {
      if (free > 0) {
        free--;
        return;
      }
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.push(resolve);
      await promise;
    },
    release() {
      const next = waiting.shift();
      if (next === undefined) free++;
      else next();
    },
  };
}
