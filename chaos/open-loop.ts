import { setTimeout as delay } from "node:timers/promises";
import type { Lane } from "./lane.ts";

/** Payments under way at a time: what bounds the memory of a client while nothing answers. */
export const IN_FLIGHT_MAX = 500;

/** Asks at fixed times, whether or not what was asked before has its answer; a payment's time is the one it was due. */
export class OpenLoop {
  readonly #perSecond: number;
  #inFlight = 0;
  #ended: () => void = () => undefined;
  /** Payments that were asked late because so many were under way. */
  held = 0;

  constructor(perSecond: number) {
    this.#perSecond = perSecond;
  }

  async drive(lane: Lane, stopping: AbortSignal): Promise<void> {
    const since = Date.now();
    for (let asked = 0; ; asked += 1) {
      const dueAtMs = since + (asked * 1_000) / this.#perSecond;
      await delay(Math.max(0, dueAtMs - Date.now()), undefined, { signal: stopping }).catch(
        () => undefined,
      );
      if (!stopping.aborted && this.#inFlight >= IN_FLIGHT_MAX) {
        this.held += 1;
        await this.#untilOneEnds();
      }
      if (stopping.aborted) break;
      void this.#ask(lane, dueAtMs);
    }
    while (this.#inFlight > 0) await this.#untilOneEnds();
  }

  async #ask(lane: Lane, dueAtMs: number): Promise<void> {
    this.#inFlight += 1;
    await lane.askOnce(dueAtMs);
    this.#inFlight -= 1;
    this.#ended();
  }

  async #untilOneEnds(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#ended = resolve;
    });
  }
}
