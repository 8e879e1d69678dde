/** What a scene has broken on purpose and must mend, however it ends. */
export interface Undo {
  /** Runs `work`, and `mend` after it; where somebody interrupts the demo amid the work, `all` mends instead. */
  readonly after: <Result>(
    mend: () => Promise<void> | void,
    work: () => Promise<Result>,
  ) => Promise<Result>;
  /** Mends all that is still broken, the last thing first. */
  readonly all: () => Promise<void>;
}

export function createUndo(): Undo {
  const broken = new Set<() => Promise<void> | void>();
  const mendOnce = async (mend: () => Promise<void> | void): Promise<void> => {
    if (broken.delete(mend)) await mend();
  };
  return {
    async after(mend, work) {
      const own = async (): Promise<void> => await mend();
      broken.add(own);
      try {
        return await work();
      } finally {
        await mendOnce(own);
      }
    },
    async all() {
      for (const mend of [...broken].toReversed()) await mendOnce(mend);
    },
  };
}
