import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { alertRules } from "../support/alert-rules.ts";
import { eventually } from "../support/eventually.ts";
import { aRequest, openFundedAccounts, useFlow } from "../support/flow.ts";
import {
  bendBalance,
  deafenListener,
  holdTransaction,
  plantDeadEvent,
  plantDeadLetter,
  plantDeadRows,
  plantOldPayment,
  startImpossibleRun,
  stopReconciling,
} from "./faults.ts";
import { STAGES, followRunbook } from "./runbook.ts";
import { createScene } from "./scene.ts";
import type { Scene } from "./scene.ts";

/** Each alert is made to fire by a real fault under a real Prometheus, and its runbook's commands end it. */

jest.setTimeout(180_000);
const flow = useFlow();
let scene: Scene;

interface Scenario {
  readonly title: string;
  /** With what the runbook's first stage must show of the cause. */
  readonly alerts: Readonly<Record<string, RegExp>>;
  /** Answers the variables of the runbooks. */
  readonly plant: () => Promise<Readonly<Record<string, string>>>;
  /** What a person does outside of the shell: a network that is mended, a worker that is started. */
  readonly repair?: () => Promise<void>;
}

const SLOW_FAULTS: { deadEvent?: { MESSAGE_ID: string }; held?: { PID: string } } = {};
const closing: (() => Promise<void>)[] = [];
let straighten: () => Promise<void>;

beforeAll(async () => {
  scene = await createScene(flow());
  closing.push(scene.end);
  await Promise.all([scene.startWorker("front"), scene.startWorker("ledger")]);
  await openFundedAccounts(flow());
  // These take half a minute until they are alerts, while the others come and go.
  await stopReconciling(flow());
  const { close, PID } = await holdTransaction(flow());
  closing.push(close);
  SLOW_FAULTS.held = { PID };
  SLOW_FAULTS.deadEvent = await plantDeadEvent(flow());
  await plantDeadRows(flow(), 120_000);
});
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
});

const SCENARIOS: readonly Scenario[] = [
  {
    title: "nobody reconciles the books",
    alerts: { RemitReconciliationMissing: /nobody has looked yet/ },
    plant: async () => await Promise.resolve({}),
  },
  {
    title: "somebody bends a balance past the rules",
    alerts: { RemitInvariantBroken: /alice/ },
    plant: async () => {
      straighten = await bendBalance(flow());
      remit("reconciliation run", { exit: 6 });
      return {};
    },
    repair: async () => await straighten(),
  },
  {
    title: "a message that is no event ends in the dead-letter queue",
    alerts: { RemitDeadLetters: /the body is not JSON/ },
    plant: async () => {
      await plantDeadLetter(flow());
      return {};
    },
  },
  {
    title: "a run's code is nowhere",
    alerts: { RemitWorkflowTasksFail: /noSuchWorkflow/ },
    plant: async () => await startImpossibleRun(flow()),
  },
  {
    title: "a transaction was forgotten, and 120,000 rows were deleted since",
    alerts: { RemitTableBloat: /outbox \| 1\d{5} /, RemitXidHeld: /forgotten/ },
    plant: async () => await Promise.resolve({ ...SLOW_FAULTS.held }),
  },
  {
    title: "SNS refuses an event for what it is",
    alerts: { RemitEventsDead: /InvalidParameter|ParameterValueInvalid/ },
    plant: async () => await Promise.resolve({ ...SLOW_FAULTS.deadEvent }),
  },
  {
    title: "a relay is paused, and a payment waits",
    alerts: {
      RemitRelayStopped: /paused.*maintenance/s,
      RemitEventsWaiting: /payment\.created/,
      RemitPaymentsStuck: /remit relay resume/,
    },
    plant: async () => {
      // An answer that comes late on a busy machine is "repeat".
      await eventually(() => remit("relay pause --reason maintenance"), { timeoutMs: 60_000 });
      return await plantOldPayment(flow());
    },
  },
  {
    title: "SNS and SQS can't be reached",
    alerts: { RemitBrokerRefuses: /does not answer|SNS takes no events/ },
    plant: async () => {
      await scene.broker.pull();
      await flow().payments.pay(aRequest());
      return {};
    },
    repair: async () => await scene.broker.mend(),
  },
  {
    title: "no connection is left for the session that listens",
    alerts: { RemitListenDeaf: /deaf, connecting again/ },
    plant: async () => await deafenListener(flow()),
  },
  {
    title: "one worker is cut off from PostgreSQL",
    alerts: {
      RemitWorkerNotReady: /PostgreSQL does not answer/,
      RemitMetricsMissing: /remit_scrape_ok\{part="database"\} 0/,
    },
    plant: async () => {
      await scene.databaseOf.ledger.pull();
      return { WORKER: scene.addressOf("ledger") };
    },
    repair: async () => await scene.databaseOf.ledger.mend(),
  },
  {
    title: "the only worker of the ledger is killed",
    alerts: { RemitQueueUnattended: /./ },
    plant: async () => {
      const { child, ended } = scene.worker("ledger");
      child.kill("SIGKILL");
      await ended;
      return { TASK_QUEUE: "ledger" };
    },
    repair: async () => await scene.startWorker("ledger"),
  },
  {
    title: "PostgreSQL is away from every worker",
    alerts: { RemitNoWorkerReady: /PostgreSQL does not answer/ },
    plant: async () => {
      await Promise.all(Object.values(scene.databaseOf).map(async (plug) => await plug.pull()));
      return {};
    },
    repair: async () => {
      await Promise.all(Object.values(scene.databaseOf).map(async (plug) => await plug.mend()));
    },
  },
];

function remit(words: string, { exit = 0 }: { exit?: number } = {}): void {
  const { cwd, env } = scene.shell;
  const main = resolve("src/cli/main.ts");
  const { status, stderr } = spawnSync(process.execPath, [main, ...words.split(" ")], { cwd, env });
  if (status !== exit) throw new Error(`remit ${words}: exit ${status}\n${String(stderr)}`);
}

test.each(SCENARIOS.map((scenario) => [scenario.title, scenario] as const))(
  "%s: the alert fires, its runbook shows the cause, and what it says ends it",
  async (_title, { alerts, plant, repair }) => {
    const env = { ...scene.shell.env, WORKER: scene.addressOf("front"), ...(await plant()) };
    const shell = { ...scene.shell, env };
    const names = Object.keys(alerts);
    const [see, mend, worked] = STAGES;
    try {
      await Promise.all(names.map(async (name) => await isFiring(name)));
      for (const [name, shown] of Object.entries(alerts)) {
        expect(await followRunbook(name, see, shell)).toMatch(shown);
      }
    } finally {
      // Also where it didn't fire, or the next faults would have two causes.
      await repair?.();
    }
    for (const name of names) await followRunbook(name, mend, shell);
    await Promise.all(names.map(async (name) => await isGone(name)));
    for (const name of names) await followRunbook(name, worked, shell);
  },
);

test("every alert of the rule file is made to fire here, and no other", () => {
  const made = SCENARIOS.flatMap(({ alerts }) => Object.keys(alerts));
  expect(made.toSorted()).toEqual(
    alertRules()
      .map(({ alert }) => alert)
      .toSorted(),
  );
});

/** With texts that Prometheus could fill in, and a link to the runbook. */
async function isFiring(name: string): Promise<void> {
  await eventually(
    async () => {
      const alerts = await scene.prometheus.alerts(name);
      expect(alerts.map(({ state }) => state)).toContain("firing");
      for (const { annotations } of alerts) {
        expect(JSON.stringify(annotations)).not.toMatch(/<error|<no value>|\{\{/);
        expect(annotations["runbook_url"]).toBe(
          `https://git.example/remit/blob/main/docs/runbooks/${name}.md`,
        );
      }
    },
    { timeoutMs: 120_000 },
  );
}

async function isGone(name: string): Promise<void> {
  await eventually(async () => expect(await scene.prometheus.alerts(name)).toEqual([]), {
    timeoutMs: 120_000,
  });
}
