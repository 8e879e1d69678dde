/**
 * The rule file with minutes turned into seconds, so that an alert which waits for half an hour fires within half a minute:
 * `for: 5m` → `5s`, a range `[10m]` → `[10s]`, `N * 60` → `N * 1`, `N * 3600` → `N * 60`. Nothing else is touched.
 */
export function scaleRules(text: string): string {
  return text
    .replaceAll(/^( +for: \d+)m$/gm, "$1s")
    .replaceAll(/\[(\d+)m\]/g, "[$1s]")
    .replaceAll(/\b(\d+) \* (3600|60)\b/g, (_, count: string, seconds: string) =>
      seconds === "60" ? `${count} * 1` : `${count} * 60`,
    );
}
