import { traceparentOf } from "../domain/trace-context.ts";

/**
 * Asked at each request: the W3C `traceparent` of what it belongs to, such as of your tracer's active span. The events that
 * the request leads to carry it. One that the standard doesn't allow is left out, as the standard asks.
 */
export type TraceSource = () => string | null | undefined;

/** The part of a request that carries it; empty where there is none. */
export function traced(source: TraceSource): { traceparent?: string } {
  const traceparent = traceparentOf(source());
  return traceparent === null ? {} : { traceparent };
}
