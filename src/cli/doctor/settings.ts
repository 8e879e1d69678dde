import type { SettingsView } from "../../config/inspect-settings.ts";
import type { WorkerSettings } from "../../config/worker-settings.ts";
import { POLL_SECONDS } from "../../messaging/sqs-receiver.ts";
import { fail, ok, warn } from "./check.ts";
import type { Check, CheckGroup, Finding } from "./check.ts";

/** What can be said without asking anybody: the settings among themselves, and this Node. */
export interface SettingsContext {
  readonly view: SettingsView;
  readonly nodeVersion: string;
}

/** TypeScript is run as it is from here on. */
const NODE_LEAST = [22, 18] as const;
/** What a worker does beside its relays at the same time, at the least: a payment, a booking, a supervision, a hint. */
const CONNECTIONS_BESIDE_RELAYS = 4;
/** Each relay claims a batch while it marks another. */
const CONNECTIONS_A_RELAY = 2;
/** The mark, and the end of the connections. */
const DRAIN_MARGIN_MS = 2_000;

const CHECKS: readonly Check<SettingsContext>[] = [
  {
    name: "settings.unread",
    about: "no variable that begins with `REMIT_` is misspelt",
    judge: ({ view: { unread } }) =>
      unread.length === 0
        ? ok("every REMIT_ variable is read")
        : warn(
            `nothing reads ${unread.join(", ")}`,
            "compare with docs/configuration.md: remit config show",
          ),
  },
  {
    name: "settings.pool",
    about: "the pool of a worker serves its relays and what it does beside them",
    judge: ({ view }) => judgePool(view.settings?.worker),
  },
  {
    name: "settings.shutdown",
    about: "a worker's grace outlasts a long poll and a send",
    judge: ({ view }) => judgeShutdown(view.settings?.worker),
  },
  {
    name: "settings.node",
    about: `Node ${NODE_LEAST.join(".")} or newer runs it`,
    judge: ({ nodeVersion }) => judgeNode(nodeVersion),
  },
];

/** The group of the settings; where they are wrong, `settings.valid` says all that is wrong. */
export function settingsGroup(context: SettingsContext): CheckGroup<SettingsContext> {
  return {
    reach: {
      name: "settings.valid",
      about: "nothing is missing, malformed, or at odds: lease and send, inbox and outbox, targets",
    },
    checks: CHECKS,
    open: async () => {
      const { problems, settings } = context.view;
      if (problems.length > 0) throw new Error(problems.join("; "));
      const found = `read from ${settings?.stackPath ?? "the environment"}`;
      return await Promise.resolve({ context, found, close: async () => await Promise.resolve() });
    },
    explain: (error) =>
      fail(
        error instanceof Error ? error.message : String(error),
        "set what is named; docs/configuration.md has each setting, remit config show its source",
      ),
  };
}

function judgePool(worker: WorkerSettings | undefined): Finding {
  if (worker === undefined) return ok("no settings");
  const { databasePoolMax, relayRanges } = worker;
  const least = CONNECTIONS_A_RELAY * relayRanges + CONNECTIONS_BESIDE_RELAYS;
  const found = `${databasePoolMax} connections, REMIT_RELAY_SHARDS=${relayRanges}`;
  if (databasePoolMax >= least) return ok(found);
  return warn(
    `${found}, where ${least} are busy at the same time`,
    `REMIT_DATABASE_POOL_MAX=${least}, or fewer ranges in REMIT_RELAY_SHARDS`,
  );
}

function judgeShutdown(worker: WorkerSettings | undefined): Finding {
  if (worker === undefined) return ok("no settings");
  const leastMs = Math.max(POLL_SECONDS * 1_000, worker.sendTimeoutMs) + DRAIN_MARGIN_MS;
  const found = `${worker.shutdownGraceMs} ms to drain`;
  if (worker.shutdownGraceMs >= leastMs) return ok(found);
  return warn(
    `${found}, and a long poll or a send alone may take ${leastMs} ms: each stop exits 1`,
    `REMIT_SHUTDOWN_GRACE_MS=${leastMs} or more`,
  );
}

function judgeNode(version: string): Finding {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [majorLeast, minorLeast] = NODE_LEAST;
  const isEnough = major > majorLeast || (major === majorLeast && minor >= minorLeast);
  if (isEnough) return ok(`Node ${version}`);
  return fail(`Node ${version}`, `run it with Node ${NODE_LEAST.join(".")} or newer`);
}
