/** Reads "500ms", "30s", "5m", "12h" or "7d"; a bare number is seconds. Null for anything else. */
export function parseDuration(text: string): number | null {
  const match = /^([0-9]{1,9})(ms|s|m|h|d)?$/.exec(text);
  return match === null ? null : Number(match[1]) * (UNIT_MS[match[2] ?? "s"] ?? 1_000);
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};
