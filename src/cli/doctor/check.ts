import { setTimeout as delay } from "node:timers/promises";

export type CheckStatus = "ok" | "warn" | "fail";

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

/** Longer than any single call of a check may take by its own deadline; so nothing that hangs holds the others. */
const CHECK_MS_MAX = 8_000;
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
  return { status: "warn", found: `not judged: ${reason}`, fix: null };
}

/** Opens, judges everything at the same time, and closes; one result a check, whatever fails. */
export async function runGroup<Context>(group: CheckGroup<Context>): Promise<CheckResult[]> {
  const { reach, checks } = group;
  let opened: Awaited<ReturnType<CheckGroup<Context>["open"]>>;
  try {
    opened = await inTime(group.open());
  } catch (error) {
    const finding = error instanceof TooLateError ? tooLate(reach.name) : group.explain(error);
    const others = checks.map(({ name }) => ({ name, ...notJudged(`see ${reach.name}`) }));
    return [{ name: reach.name, ...finding }, ...others];
  }
  const { context, found, close } = opened;
  const results = await Promise.all(
    checks.map(async (check) => ({ name: check.name, ...(await judge(group, check, context)) })),
  );
  await Promise.race([close(), delay(CLOSE_MS_MAX, undefined, { ref: false })]).catch(
    () => undefined,
  );
  return [{ name: reach.name, ...ok(found) }, ...results];
}

async function judge<Context>(
  { explain }: CheckGroup<Context>,
  check: Check<Context>,
  context: Context,
): Promise<Finding> {
  try {
    return await inTime((async () => await check.judge(context))());
  } catch (error) {
    return error instanceof TooLateError ? tooLate(check.name) : explain(error);
  }
}

class TooLateError extends Error {}

function tooLate(name: string): Finding {
  return fail(
    `no answer within ${CHECK_MS_MAX / 1_000} s`,
    `see what stands between here and there: a firewall, a frozen server (${name})`,
  );
}

async function inTime<Result>(work: Promise<Result>): Promise<Result> {
  const stop = new AbortController();
  const late = async (): Promise<never> => {
    await delay(CHECK_MS_MAX, undefined, { signal: stop.signal, ref: false });
    throw new TooLateError();
  };
  try {
    return await Promise.race([work, late()]);
  } finally {
    stop.abort();
  }
}
