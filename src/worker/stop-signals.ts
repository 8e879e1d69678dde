const SIGNAL_NUMBERS = { SIGINT: 2, SIGTERM: 15 } as const;
/** A terminal's Ctrl-C reaches us and npm, which passes it on: within this time both are one wish. */
const ONE_WISH_MS = 150;

/** Aborts at the first SIGTERM or SIGINT; the second one ends the process at once, with the signal's exit code. */
export function stopSignals(): AbortController {
  const stopping = new AbortController();
  let firstAtMs: number | undefined;
  for (const name of ["SIGTERM", "SIGINT"] as const) {
    process.on(name, () => {
      firstAtMs ??= Date.now();
      if (Date.now() - firstAtMs > ONE_WISH_MS) process.exit(128 + SIGNAL_NUMBERS[name]);
      stopping.abort();
    });
  }
  return stopping;
}
