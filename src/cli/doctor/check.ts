import { setTimeout as delay } from "node:timers/promises";

/** `unknown`: nobody could look. */
export type CheckStatus = "ok" | "warn" | "fail" | "unknown";

/** What a check found, in words without secrets, and what mends it where it isn't as it should be. */
export interface Finding {
  readonly status: CheckStatus;
  readonly found: string;
  /** A command or a setting. */
  readonly fix: string | null;
}

export interface CheckResult extends Finding {
  readonly name: string;
}

/** One thing that must be right; `about` is its line in docs/doctor.md. */
export interface Check<Context> {
  readonly name: string;
  readonly about: string;
  readonly judge: (context: Context) => Finding | Promise<Finding>;
}

/** The checks of one dependency, which are all open where it doesn't answer. */
export interface CheckGroup<Context> {
  /** The name of the check that it answers at all. */
  readonly reach: Pick<Check<never>, "name" | "about">;
  readonly checks: readonly Check<Context>[];
  /** @throws what `explain` puts into words */
  readonly open: () => Promise<{ context: Context; found: string; close: () => Promise<void> }>;
  /** Why it could not be reached (`open` failed), or why one check could not be judged. */
  readonly explain: (error: unknown) => Finding;
}

/** For a group as a whole: what hangs holds neither the others nor the person who waits. */
const GROUP_MS_MAX = 8_000;
const CLOSE_MS_MAX = 1_000;

export function ok(found: string): Finding {
  return { status: "ok", found, fix: null };
}

export function warn(found: string, fix: string): Finding {
  return { status: "warn", found, fix };
}

export function fail(found: string, fix: string): Finding {
  return { status: "fail", found, fix };
}

/** Nobody could look: that isn't "ok", and what is in the way fails by itself. */
export function notJudged(reason: string): Finding {
  return { status: "unknown", found: `not judged: ${reason}`, fix: null };
}

/** Opens, judges everything at the same time, and closes; one result a check, whatever fails or hangs. */
export async function runGroup<Context>(
  group: CheckGroup<Context>,
  { withinMs = GROUP_MS_MAX }: { withinMs?: number } = {},
): Promise<CheckResult[]> {
  const { reach, checks } = group;
  const late = delay(withinMs, LATE, { ref: false });
  const opening = group.open();
  let opened: Awaited<typeof opening> | typeof LATE;
  try {
    opened = await Promise.race([opening, late]);
  } catch (error) {
    return unreached(group, group.explain(error));
  }
  if (opened === LATE) return unreached(group, tooLate(withinMs));
  const { context, found, close } = opened;
  const results = await Promise.all(
    checks.map(async (check) => ({
      name: check.name,
      ...(await Promise.race([judge(group, check, context), late.then(() => tooLate(withinMs))])),
    })),
  );
  await Promise.race([close(), delay(CLOSE_MS_MAX, undefined, { ref: false })]).catch(
    () => undefined,
  );
  return [{ name: reach.name, ...ok(found) }, ...results];
}

const LATE = Symbol("late");

function unreached<Context>(
  { reach, checks }: CheckGroup<Context>,
  finding: Finding,
): CheckResult[] {
  const others = checks.map(({ name }) => ({ name, ...notJudged(`see ${reach.name}`) }));
  return [{ name: reach.name, ...finding }, ...others];
}

async function judge<Context>(
  { explain }: CheckGroup<Context>,
  check: Check<Context>,
  context: Context,
): Promise<Finding> {
  try {
    return await check.judge(context);
  } catch (error) {
    return explain(error);
  }
}

function tooLate(withinMs: number): Finding {
  return fail(
    `no answer within ${withinMs / 1_000} s`,
    "see whether the server is frozen (kill -CONT), or a firewall swallows what is sent",
  );
}
