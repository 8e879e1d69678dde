/** What a person's Ctrl-C, or a signal to end, means for a command that must put things in order first. */
export interface Interruption {
  readonly signal: AbortSignal;
  readonly happened: Promise<void>;
  readonly dispose: () => void;
}

/** The exit code of a command that was asked to stop. */
export const INTERRUPTED = 130;

/** The first signal asks for an orderly end; another one, from a person who is tired of waiting, ends at once. */
export function interruptions(): Interruption {
  const controller = new AbortController();
  const happened = new Promise<void>((resolve) => {
    controller.signal.addEventListener("abort", () => resolve());
  });
  let firstAt = 0;
  const listener = (): void => {
    if (!controller.signal.aborted) {
      firstAt = Date.now();
      controller.abort(new Error("interrupted"));
      return;
    }
    // npm, the shim and the terminal may each pass on the same Ctrl-C. The guard ends what this leaves.
    if (Date.now() - firstAt > SAME_SIGNAL_MS) process.exit(INTERRUPTED);
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, listener);
  return {
    signal: controller.signal,
    happened,
    dispose: () => {
      for (const signal of signals) process.off(signal, listener);
    },
  };
}

const SAME_SIGNAL_MS = 1_500;
