import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connectTemporal } from "../src/client/temporal-connection.ts";
import { withClient } from "../src/local/postgres.ts";
import type { ChaosWorker } from "./fleet.ts";
import { pause } from "./pause.ts";
import type { Scenario, Stage } from "./scenarios.ts";
import { SERVICES } from "./stack.ts";
import type { ChaosStack, ServiceName } from "./stack.ts";
import type { BrokerAction, BrokerFault, TemporalFault } from "./traffic.ts";

/** Everything that isn't a kill at a failpoint; each fault lasts for a while and ends. */
export function disturbances(): Scenario[] {
  return [
    ...brokerTraffic(),
    ...temporalTraffic(),
    ...networks(),
    ...processes(),
    ...databases(),
    ...operators(),
  ];
}

function brokerTraffic(): Scenario[] {
  const faults: [string, string, BrokerAction[], BrokerFault][] = [
    [
      "broker-5xx",
      "the broker answers 503",
      ALL,
      { kind: "refuse", status: 503, code: "ServiceUnavailable" },
    ],
    [
      "broker-throttled",
      "the broker throttles",
      ALL,
      { kind: "refuse", status: 400, code: "ThrottlingException" },
    ],
    ["broker-slow", "the broker takes a second more", ALL, { kind: "delay", ms: 1_000 }],
    ["lost-acks", "SNS accepts, and its answer is lost", ["PublishBatch"], { kind: "lostAnswer" }],
    [
      "lost-deletes",
      "SQS deletes, and its answer is lost",
      ["DeleteMessageBatch"],
      { kind: "lostAnswer" },
    ],
    [
      "lost-receives",
      "SQS hands messages out that never arrive",
      ["ReceiveMessage"],
      { kind: "lostAnswer" },
    ],
    ["partial-batches", "SNS refuses half of each batch", ["PublishBatch"], { kind: "failHalf" }],
    [
      "repeats",
      "each message comes twice, in reverse",
      ["ReceiveMessage"],
      { kind: "repeatReversed" },
    ],
  ];
  return faults.map(([name, about, actions, fault]) =>
    lasting(`traffic:${name}`, about, ({ traffic, random }) => {
      traffic.brokerFault = ({ action }) =>
        actions.includes(action) && random.integer(1, 3) > 1 ? fault : null;
      return () => traffic.calm();
    }),
  );
}

const ALL: BrokerAction[] = ["PublishBatch", "ReceiveMessage", "DeleteMessageBatch"];

/** Writes: a poll whose answer is lost takes its task along until that times out, which is a kill of the worker. */
const WRITES = /^(Start|Signal|Respond|Record)/;
const UNAVAILABLE = 14;
const RESOURCE_EXHAUSTED = 8;

function temporalTraffic(): Scenario[] {
  const faults: [string, string, TemporalFault][] = [
    [
      "temporal-unavailable",
      "Temporal answers UNAVAILABLE",
      { kind: "refuse", grpcStatus: UNAVAILABLE },
    ],
    [
      "temporal-throttled",
      "Temporal answers RESOURCE_EXHAUSTED",
      { kind: "refuse", grpcStatus: RESOURCE_EXHAUSTED },
    ],
    ["temporal-lost-answers", "Temporal does it, and its answer is lost", { kind: "lostAnswer" }],
  ];
  return faults.map(([name, about, fault]) =>
    lasting(`traffic:${name}`, about, ({ traffic, random }) => {
      traffic.temporalFault = ({ method }) =>
        WRITES.test(method) && random.integer(1, 3) > 1 ? fault : null;
      return () => traffic.calm();
    }),
  );
}

/** The cables of one worker at a time, or of all. */
function networks(): Scenario[] {
  const ways: [
    string,
    string,
    (worker: ChaosWorker, service: ServiceName) => void | Promise<void>,
  ][] = [
    ["blackhole", "nothing of what is sent arrives", ({ plugs }, service) => plugs[service].mute()],
    ["half-open", "open connections go silent", ({ plugs }, service) => plugs[service].halfOpen()],
    [
      "cut",
      "connections end, and none can be opened",
      async ({ plugs }, service) => await plugs[service].pull(),
    ],
  ];
  return SERVICES.flatMap((service) =>
    ways.map(([name, about, harm]) =>
      lasting(
        `network:${name}-${service}`,
        `${about}, to ${service}`,
        async ({ fleet, random }) => {
          const all = fleet.workers();
          const struck = random.integer(1, 4) === 1 ? all : [random.oneOf(all)];
          await Promise.all(struck.map(async (worker) => await harm(worker, service)));
          return async () => {
            const living = new Set(fleet.workers());
            const left = struck.filter((worker) => living.has(worker));
            await Promise.all(left.map(async ({ plugs }) => await plugs[service].mend()));
          };
        },
      ),
    ),
  );
}

function processes(): Scenario[] {
  return [
    once(
      "process:frozen",
      "SIGSTOP of a worker for longer than its lease, then SIGCONT",
      async ({ fleet, random, signal }) => {
        const worker = random.oneOf(
          fleet.workers(random.oneOf(["relay", "relay", "ledger", "payments"] as const)),
        );
        process.kill(worker.pid, "SIGSTOP");
        await pause(random.integer(FROZEN_MS_MIN, FROZEN_MS_MIN + 4_000), signal);
        process.kill(worker.pid, "SIGCONT");
      },
    ),
    lasting(
      "process:skewed-clock",
      "a worker's clock is up to an hour ahead or behind",
      async ({ fleet, random }) => {
        const worker = random.oneOf(fleet.workers());
        const aheadMs = random.integer(-CLOCK_SECONDS_MAX, CLOCK_SECONDS_MAX) * 1_000;
        const before = new Set(fleet.workers());
        await fleet.replace(worker.name, {
          CHAOS_CLOCK_AHEAD_MS: String(aheadMs),
          NODE_OPTIONS: `--import=${join(import.meta.dirname, "skewed-clock.ts")}`,
        });
        const skewed = fleet.workers(worker.role).filter((each) => !before.has(each));
        return async () => {
          for (const { name } of skewed) await fleet.kill(name);
        };
      },
    ),
  ];
}

const CLOCK_SECONDS_MAX = 3_600;
/** Longer than the lease and the heartbeat timeout. */
const FROZEN_MS_MIN = 6_000;

function databases(): Scenario[] {
  const admin = async (stage: Stage, sql: string): Promise<void> => {
    await withClient(
      stage.stack.adminDatabaseUrl,
      async (client) => void (await client.query(sql)),
    );
  };
  return [
    once(
      "database:backends-killed",
      "all sessions of Remit are terminated",
      async ({ stack }) => await endSessions(stack),
    ),
    lasting("database:lost-notifications", "NOTIFY reaches nobody", ({ traffic }) => {
      traffic.rewriteSql = withoutNotify;
      return () => traffic.calm();
    }),
    once(
      "database:restarted",
      "PostgreSQL is shut down in order and started again",
      async ({ stack, signal }) => {
        const { pid } = stack.services.postgres.current();
        process.kill(pid, "SIGINT");
        while (stack.services.postgres.current().pid === pid && !signal.aborted) await delay(50);
      },
    ),
    lasting("database:read-only", "new transactions may not write", async (stage) => {
      await admin(stage, "ALTER ROLE remit SET default_transaction_read_only = on");
      await endSessions(stage.stack);
      return async () => {
        await admin(stage, "ALTER ROLE remit RESET default_transaction_read_only");
        await endSessions(stage.stack);
      };
    }),
    lasting("database:no-connections", "Remit's role may open no connection", async (stage) => {
      await admin(stage, "ALTER ROLE remit CONNECTION LIMIT 0");
      await endSessions(stage.stack);
      return async () => await admin(stage, "ALTER ROLE remit CONNECTION LIMIT -1");
    }),
    once(
      "database:held-xid",
      "a foreign transaction holds its xid and snapshot",
      async ({ stack, signal, random }) => {
        await withClient(stack.adminDatabaseUrl, async (client) => {
          await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
          await client.query("SELECT pg_current_xact_id()");
          await pause(random.integer(3_000, 8_000), signal);
          await client.query("ROLLBACK");
        });
      },
    ),
  ];
}

/** The listener's proof that it hears goes on. */
export function withoutNotify(sql: string): string {
  return sql === "NOTIFY remit_outbox" ? "SELECT 1" : sql;
}

/** Of Remit's role; every worker connects anew. */
export async function endSessions({ adminDatabaseUrl }: ChaosStack): Promise<void> {
  await withClient(adminDatabaseUrl, async (client) => {
    await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'remit'",
    );
  });
}

function operators(): Scenario[] {
  return [
    once(
      "operator:relay-terminated",
      "a relay's workflow is terminated by hand",
      async ({ stack, random }) => {
        const { client, close } = await connectTemporal({
          address: stack.temporalAddress,
          namespace: stack.temporalNamespace,
          connectionOptions: {},
        });
        const ids: string[] = [];
        const query = "WorkflowId STARTS_WITH 'outbox-relay:' AND ExecutionStatus = 'Running'";
        for await (const { workflowId } of client.workflow.list({ query })) ids.push(workflowId);
        if (ids.length > 0)
          await client.workflow
            .getHandle(random.oneOf(ids.toSorted()))
            .terminate("chaos")
            .catch(() => undefined);
        await close();
      },
    ),
    once(
      "operator:rolling-deployment",
      "a worker is ended in order and another takes its place",
      async ({ fleet, random }) => {
        await fleet.drain(random.oneOf(fleet.workers()).name);
        await fleet.untilWhole();
      },
    ),
  ];
}

/** A fault at a moment, or that ends by itself; a pause follows. */
function once(name: string, about: string, strike: (stage: Stage) => Promise<void>): Scenario {
  return {
    name,
    about,
    play: async (stage) => {
      const { runs, signal, random, fault } = stage;
      for (let run = 0; run < runs && !signal.aborted; run += 1) {
        await pause(random.integer(500, 2_000), signal);
        fault();
        await strike(stage);
      }
    },
  };
}

/** A fault that lasts until it is undone. */
export function lasting(
  name: string,
  about: string,
  start: (stage: Stage) => (() => void | Promise<void>) | Promise<() => void | Promise<void>>,
): Scenario {
  return once(name, about, async (stage) => {
    const end = await start(stage);
    try {
      await pause(stage.random.integer(1_500, 6_000), stage.signal);
    } finally {
      await end();
    }
  });
}
