/**
 * W3C Trace Context (https://www.w3.org/TR/trace-context/): version, trace id, parent id and flags. Remit makes no spans of
 * its own, so it passes on what it was given, unchanged.
 */
export const TRACEPARENT_PATTERN = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** A traceparent that can be passed on; null for one that the standard has everybody leave out, so that no trace stops a payment. */
export function traceparentOf(value: unknown): string | null {
  return typeof value === "string" && TRACEPARENT_PATTERN.test(value) ? value : null;
}

/** The id that all spans of a trace share; null where there is none. */
export function traceIdOf(value: unknown): string | null {
  return traceparentOf(value)?.split("-")[1] ?? null;
}
