import { Gauge, collectDefaultMetrics } from "prom-client";
import { keptLook } from "./kept-look.ts";
import type { Kept } from "./kept-look.ts";
import type { Metrics } from "./metrics.ts";

/** One series of a gauge as a look found it. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Gauges that one look at a dependency yields; where it fails they are missing from the page, and nothing else is. */
export interface MetricsPart<Name extends string = string> {
  readonly name: string;
  /** By name, without the prefix. */
  readonly gauges: Readonly<Record<Name, GaugeText>>;
  readonly look: () => Promise<Readonly<Record<Name, readonly Sample[]>>>;
}

interface GaugeText {
  readonly help: string;
  readonly labels: readonly string[];
}

export interface MetricsPageOptions {
  readonly metrics: Metrics;
  /** Sets what is known without a look, such as how full the pool is; bounded in time by itself. */
  readonly refresh: () => Promise<void>;
  /** Asked at each scrape, so that a process may come to have more of them while it starts. */
  readonly parts: () => readonly MetricsPart[];
  /** The page of Temporal's own exporter; null where this process has none. */
  readonly temporal: () => (() => Promise<string>) | null;
}

export interface MetricsPage {
  readonly contentType: string;
  readonly text: () => Promise<string>;
}

/** Scrapers may be many and impatient; what a look finds changes little within this. */
const REST_MS_MIN = 5_000;
/** A scrape has one or more seconds: a part that takes longer shows what it found before, or is missing. */
const PART_MS_MAX = 800;

/** Answers a scrape whatever is away: each part that can't be had is left out, and `remit_scrape_ok` says which. */
export function createMetricsPage(options: MetricsPageOptions): MetricsPage {
  const { metrics, refresh, parts, temporal } = options;
  collectDefaultMetrics({ register: metrics.registry });
  const shown = new Map<MetricsPart, () => Promise<void>>();
  const show = (part: MetricsPart): (() => Promise<void>) => {
    const showing = shown.get(part) ?? showPart(metrics, part);
    shown.set(part, showing);
    return showing;
  };
  const readTemporal = keptLook(async () => await (temporal()?.() ?? Promise.resolve("")), {
    restMsMin: 0,
    waitMsMax: PART_MS_MAX,
  });
  return {
    contentType: metrics.registry.contentType,
    text: async () => {
      const [kept] = await Promise.all([
        temporal() === null ? null : readTemporal(),
        refresh(),
        ...parts().map(async (part) => await show(part)()),
      ]);
      if (kept !== null) tellPart(metrics, "temporal", kept);
      return `${await metrics.registry.metrics()}${kept?.found ?? ""}`;
    },
  };
}

function showPart(metrics: Metrics, { name, gauges, look }: MetricsPart): () => Promise<void> {
  const entries = Object.entries(gauges).map(([gaugeName, { help, labels }]) => {
    const gauge = new Gauge({
      name: `remit_${gaugeName}`,
      help,
      labelNames: [...labels],
      registers: [metrics.registry],
    });
    return [gaugeName, gauge] as const;
  });
  const read = keptLook(look, { restMsMin: REST_MS_MIN, waitMsMax: PART_MS_MAX });
  return async () => {
    const kept = await read();
    tellPart(metrics, name, kept);
    for (const [gaugeName, gauge] of entries) showSamples(gauge, kept.found?.[gaugeName] ?? []);
  };
}

function tellPart({ parts, partSeconds }: Metrics, part: string, kept: Kept<unknown>): void {
  parts.set({ part }, kept.found === null ? 0 : 1);
  if (kept.tookMs !== null) partSeconds.set({ part }, kept.tookMs / 1_000);
}

function showSamples(gauge: Gauge, samples: readonly Sample[]): void {
  gauge.reset();
  // A gauge without labels is 0 after a reset, which would be a lie.
  gauge.remove({});
  for (const { labels, value } of samples) gauge.set({ ...labels }, value);
}
