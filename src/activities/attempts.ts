/** So many failures in a row aren't of single items: whom they ask is away. */
const FAILURES_IN_A_ROW_MAX = 10;

/** Goes on where one item fails, counts it, and keeps the first reason. */
export class Attempts {
  failed = 0;
  firstFailure: string | null = null;
  #inARow = 0;

  /** Counts a failure of what nothing else waits for; never throws. */
  async note(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#count(error);
    }
  }

  /** Undefined where it failed; @throws what the tenth failure in a row threw */
  async make<Result>(work: () => Promise<Result>): Promise<Result | undefined> {
    try {
      const result = await work();
      this.#inARow = 0;
      return result;
    } catch (error) {
      this.#inARow += 1;
      if (this.#inARow >= FAILURES_IN_A_ROW_MAX) throw error;
      this.#count(error);
      return undefined;
    }
  }

  #count(error: unknown): void {
    this.failed += 1;
    this.firstFailure ??= error instanceof Error ? error.message : String(error);
  }
}
