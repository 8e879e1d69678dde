import { readFileSync } from "node:fs";
import type { Fleet } from "./fleet.ts";
import type { WorkerMemory } from "./report.ts";

const LOOK_EVERY_MS = 10_000;
/** A worker fills its caches first. */
const YOUNG_MS = 60_000;
/** Of less than this the slope says nothing. */
const SPAN_MS_MIN = 10 * 60_000;

interface Sample {
  readonly atMs: number;
  readonly megabytes: number;
}

/** Looks at the resident memory of the workers now and then; `end` answers that of those that live then. */
export function watchMemory(fleet: Fleet): { readonly end: () => WorkerMemory[] } {
  const samples = new Map<string, Sample[]>();
  const look = (): void => {
    const living = fleet.workers();
    const names = new Set(living.map(({ name }) => name));
    for (const name of samples.keys()) if (!names.has(name)) samples.delete(name);
    for (const { name, pid } of living) {
      const megabytes = residentMegabytes(pid);
      if (megabytes === null) continue;
      samples.set(name, [...(samples.get(name) ?? []), { atMs: Date.now(), megabytes }]);
    }
  };
  look();
  const timer = setInterval(look, LOOK_EVERY_MS);
  return {
    end: () => {
      clearInterval(timer);
      look();
      return [...samples].flatMap(([name, taken]) => memoryOf(name, taken) ?? []);
    },
  };
}

function memoryOf(name: string, samples: readonly Sample[]): WorkerMemory | null {
  const since = samples[0]?.atMs ?? 0;
  const grown = samples.filter(({ atMs }) => atMs >= since + YOUNG_MS);
  const [first, last] = [grown[0], grown.at(-1)];
  if (first === undefined || last === undefined) return null;
  if (last.atMs - first.atMs < SPAN_MS_MIN) return null;
  return {
    worker: name,
    minutes: Math.round((last.atMs - since) / 60_000),
    fromMegabytes: Math.round(first.megabytes),
    toMegabytes: Math.round(last.megabytes),
    megabytesAnHour: Math.round(slopeOf(grown) * 3_600_000),
  };
}

/** Least squares, in MB a ms: one collection of garbage more or less bends the line of two points. */
function slopeOf(samples: readonly Sample[]): number {
  const mean = (of: (sample: Sample) => number): number =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / samples.length;
  const at = mean(({ atMs }) => atMs);
  const size = mean(({ megabytes }) => megabytes);
  const covariance = mean(({ atMs, megabytes }) => (atMs - at) * (megabytes - size));
  return covariance / mean(({ atMs }) => (atMs - at) ** 2);
}

/** Null where there is no such process, or no /proc. */
function residentMegabytes(pid: number): number | null {
  try {
    const [, kilobytes] =
      /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    return kilobytes === undefined ? null : Number(kilobytes) / 1_024;
  } catch {
    return null;
  }
}
