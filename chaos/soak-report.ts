import type { Quantiles, Result } from "./report.ts";

/** What a soak is told by, name and value; nothing for another scenario. */
export function soakFacts(result: Result): [name: string, value: string][] {
  const { soak } = result;
  if (soak === undefined) return [];
  const share = `${Math.round(soak.load * 100)} % of ${soak.capacityPerSecond.toFixed(1)}`;
  const faults = Object.entries(soak.faults).map(
    ([name, count]) => name + (count > 1 ? ` × ${count}` : ""),
  );
  const memory = soak.memory.map(
    ({ worker, minutes, fromMegabytes, toMegabytes, megabytesAnHour }) =>
      `${worker} ${fromMegabytes} → ${toMegabytes} in ${minutes} min (${megabytesAnHour} an hour)`,
  );
  return [
    ["minutes", String(soak.minutesPlayed)],
    ["asked for", `${soak.askedPerSecond.toFixed(1)} payments/s, ${share}`],
    ["payments", String(result.payments)],
    ["lost", String(result.lost)],
    ["doubled", String(result.doubled)],
    ["duplicates absorbed", String(result.duplicatesAbsorbed)],
    ["longest recovery", `${result.recoverySecondsMax.toFixed(1)} s`],
    ["asked until answered", quantiles(soak.answerMs)],
    ["asked until settled", quantiles(soak.settledMs)],
    [`asked late, ${soak.inFlightMax} being under way`, String(soak.heldByInFlightMax)],
    ["faults", `${result.runs}: ${faults.join(", ")}`],
    ["memory of workers that lived to the end, MB", memory.join("; ") || "none lived for 11 min"],
    ["seed", String(result.seed)],
  ];
}

function quantiles({ p50, p99, max }: Quantiles): string {
  const seconds = [p50, p99, max].map((ms) => (ms / 1_000).toFixed(2));
  return `p50 ${seconds[0]} s, p99 ${seconds[1]} s, max ${seconds[2]} s`;
}
