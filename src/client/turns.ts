/** A place in the queues that a piece of work stands in. */
export interface Turn {
  /** Resolves once everybody who entered before under one of the same names is done. */
  readonly ready: Promise<unknown>;
  /** Lets the next ones go; call it whatever happened. */
  readonly done: () => void;
}

/** Lets work that shares a name go in the order in which it entered, and all else in parallel. */
export interface Turns {
  readonly enter: (names: readonly string[]) => Turn;
}

export function createTurns(): Turns {
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

/** Money on its way to accounts: what is still to come, and a wait for all that has been announced so far. */
export interface Arrivals {
  /** Announces money to an account; call the result once it is there or will not come. */
  readonly announce: (account: string) => () => void;
  /** Resolves once all that was announced to the account before this call is decided. */
  readonly settled: (account: string) => Promise<void>;
}

export function createArrivals(): Arrivals {
  const pendingByAccount = new Map<string, Set<Promise<void>>>();
  return {
    announce(account) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const pending = pendingByAccount.get(account) ?? new Set();
      pendingByAccount.set(account, pending.add(promise));
      return () => {
        pending.delete(promise);
        if (pending.size === 0 && pendingByAccount.get(account) === pending) {
          pendingByAccount.delete(account);
        }
        resolve();
      };
    },
    settled: async (account) => {
      const pending = pendingByAccount.get(account);
      if (pending !== undefined) await Promise.all(pending);
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
