/** A metric as a page in Prometheus's text format has it. */
export interface ExposedMetric {
  readonly type: string;
  /** Without `le`, which is a histogram's own. */
  readonly labels: readonly string[];
  readonly help: string;
  /** Sample by its labels as they stand between the braces; of a histogram, its count. */
  readonly values: ReadonlyMap<string, number>;
}

/** What a page of `/metrics` has, by name. */
export function metricsOf(page: string): Map<string, ExposedMetric> {
  const found = new Map<
    string,
    { type: string; help: string; labels: Set<string>; values: Map<string, number> }
  >();
  for (const line of page.split("\n")) {
    const [, kind, name = "", text = ""] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? [];
    if (kind !== undefined) {
      const metric = found.get(name) ?? {
        type: "",
        help: "",
        labels: new Set(),
        values: new Map(),
      };
      found.set(name, kind === "TYPE" ? { ...metric, type: text } : { ...metric, help: text });
      continue;
    }
    const sample = /^(\w+?)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (sample === null) continue;
    const [, series = "", labels = "", value] = sample;
    const metric = found.get(series) ?? found.get(series.replace(/_(bucket|sum|count)$/, ""));
    for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) {
      if (label !== "le") metric?.labels.add(label);
    }
    const isPart = !found.has(series) && !series.endsWith("_count");
    if (!isPart) metric?.values.set(labels, Number(value));
  }
  return new Map(
    [...found].map(([name, { labels, ...metric }]) => [name, { ...metric, labels: [...labels] }]),
  );
}

/** The value of a series; null where the page has none. */
export function valueOf(page: string, name: string, labels = ""): number | null {
  return metricsOf(page).get(name)?.values.get(labels) ?? null;
}
