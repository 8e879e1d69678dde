import { setTimeout as delay } from "node:timers/promises";

interface Part {
  readonly close: () => Promise<void>;
}

/** How a worker ended: in order, or with parts that were still open when the time for it was over. */
export type WorkerEnd =
  { readonly drained: true } | { readonly drained: false; readonly open: readonly string[] };

/**
 * What a worker process has open, to be closed newest first: what takes work in is opened last, after what works on it,
 * after the connections of both.
 */
export class OpenParts {
  readonly #parts: { readonly name: () => string; readonly part: Part }[] = [];

  /** `name` says what a person would look for when it doesn't close; as a function, how it stands at that moment. */
  add<Kind extends Part>(name: string | (() => string), part: Kind): Kind {
    this.#parts.push({ name: typeof name === "string" ? () => name : name, part });
    return part;
  }

  /** Goes on after a part that fails to close; that one counts as open, with its error. */
  async closeWithin(graceMs: number): Promise<WorkerEnd> {
    const failed: string[] = [];
    const inTime = new AbortController();
    const isDone = await Promise.race([
      this.#close(failed).then(() => true),
      delay(graceMs, false, { signal: inTime.signal }),
    ]).finally(() => inTime.abort());
    if (isDone && failed.length === 0) return { drained: true };
    return { drained: false, open: [...failed, ...this.#parts.map(({ name }) => name())] };
  }

  async #close(failed: string[]): Promise<void> {
    for (let last = this.#parts.at(-1); last !== undefined; last = this.#parts.at(-1)) {
      const { name, part } = last;
      await part.close().catch((error: unknown) => failed.push(`${name()}: ${String(error)}`));
      this.#parts.splice(this.#parts.indexOf(last), 1);
    }
  }
}
