import { readClock } from "../../database/doctor-queries.ts";
import type { DoctorSession } from "../../database/doctor-queries.ts";
import { fail, ok, warn } from "./check.ts";
import type { Finding } from "./check.ts";

/** A request is refused 10 s after the time that its client wrote into it: at half of that, payments are at risk. */
const SKEW_MS_MAX = 5_000;
const SKEW_MS_NOTABLE = 1_000;
const SYNCHRONISE = "synchronise both machines by NTP (chronyc tracking, timedatectl)";

/** How far PostgreSQL's clock is from ours; half of the round trip is as exact as it gets. */
export async function judgeClock({
  session,
  now,
}: {
  readonly session: DoctorSession;
  readonly now: () => number;
}): Promise<Finding> {
  const before = now();
  const there = await readClock(session);
  const after = now();
  return judgeSkew({
    whose: "PostgreSQL's",
    skewMs: there - (before + after) / 2,
    blurMs: (after - before) / 2,
  });
}

export interface Skew {
  readonly whose: string;
  /** Positive where the other one is ahead. */
  readonly skewMs: number;
  /** What can't be told apart from agreement. */
  readonly blurMs: number;
}

export function judgeSkew({ whose, skewMs, blurMs }: Skew): Finding {
  const known = Math.max(0, Math.abs(skewMs) - blurMs);
  const found = `${whose} clock is ${(Math.abs(skewMs) / 1_000).toFixed(1)} s ${skewMs < 0 ? "behind" : "ahead of"} this machine's`;
  if (known > SKEW_MS_MAX) return fail(found, SYNCHRONISE);
  if (known > SKEW_MS_NOTABLE) return warn(found, SYNCHRONISE);
  return ok(`${whose} clock agrees`);
}
