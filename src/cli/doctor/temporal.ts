import { ScheduleNotFoundError, isGrpcServiceError } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { connectTemporal } from "../../client/temporal-connection.ts";
import type { Settings } from "../../config/settings.ts";
import { DomainError } from "../../domain/errors.ts";
import { scheduleIds } from "../../domain/ids.ts";
import { SEARCH_ATTRIBUTES } from "../../domain/search-attributes.ts";
import { temporalCommand } from "./temporal-command.ts";
import { RUN_CHECKS } from "./temporal-runs.ts";
import { UPKEEP_CHECK } from "./temporal-upkeep.ts";
import { fail, notJudged, ok, warn } from "./check.ts";
import type { Check, CheckGroup, Finding } from "./check.ts";

export interface TemporalContext {
  readonly settings: Settings;
  readonly client: Client;
  readonly namespace: string;
  /** For so long ended runs are kept. */
  readonly retentionSeconds: number;
  /** This machine's clock, as ms since the epoch. */
  readonly now: () => number;
  /** Gives each call its deadline. */
  readonly ask: <Result>(call: () => Promise<Result>) => Promise<Result>;
}

const CALL_MS_MAX = 5_000;
const HOUR_SECONDS = 3_600;
/** Temporal's own default. Below it a person who comes in the morning finds nothing of the night. */
const RETENTION_SECONDS_LEAST = 24 * HOUR_SECONDS;
const KEYWORD = 2;
/** gRPC's codes. */
const NOT_FOUND = 5;
const PERMISSION_DENIED = 7;
const UNAUTHENTICATED = 16;
/** A Schedule whose next time has passed by so much isn't kept. */
const SCHEDULE_LATE_MS = 120_000;

const CHECKS: readonly Check<TemporalContext>[] = [
  {
    name: "temporal.retention",
    about: "ended runs are kept for a day or longer",
    judge: ({ settings, retentionSeconds }) => {
      const found = `ended runs are kept for ${retentionSeconds / HOUR_SECONDS} h`;
      if (retentionSeconds >= RETENTION_SECONDS_LEAST) return ok(found);
      return warn(
        found,
        temporalCommand(settings, "operator namespace update", "--retention 720h"),
      );
    },
  },
  {
    name: "temporal.search_attributes",
    about: "the search attributes are there, each of type Keyword",
    judge: judgeSearchAttributes,
  },
  {
    name: "temporal.schedules",
    about: "the Schedules of supervision and upkeep exist, aren't paused, and are kept",
    judge: judgeSchedules,
  },
  UPKEEP_CHECK,
  {
    name: "temporal.deployment",
    about: "new work goes to this build, where builds are versioned",
    judge: judgeDeployment,
  },
  ...RUN_CHECKS,
];

/** The checks of Temporal's namespace and of what runs in it. */
export function temporalGroup(
  settings: Settings | null,
  { now }: { now: () => number },
): CheckGroup<TemporalContext> {
  return {
    reach: {
      name: "temporal.reachable",
      about: "Temporal answers, lets us in, and has the namespace",
    },
    checks: CHECKS,
    open: async () => {
      if (settings === null) throw new NoTargetError();
      const { address, namespace } = settings.temporal;
      const { client, close } = await connectTemporal(settings.temporal);
      const ask = async <Result>(call: () => Promise<Result>): Promise<Result> =>
        await client.connection.withDeadline(Date.now() + CALL_MS_MAX, call);
      try {
        const { config } = await ask(
          async () => await client.workflowService.describeNamespace({ namespace }),
        );
        const retentionSeconds = Number(config?.workflowExecutionRetentionTtl?.seconds ?? 0);
        const context = { settings, client, namespace, retentionSeconds, now, ask };
        return { context, found: `${address}, namespace ${namespace}`, close };
      } catch (error) {
        await close();
        throw error;
      }
    },
    explain: (error) => explain(error, settings),
  };
}

class NoTargetError extends Error {}

function explain(error: unknown, settings: Settings | null): Finding {
  if (error instanceof NoTargetError || settings === null) {
    return notJudged("the settings don't say where Temporal is");
  }
  const { namespace, address } = settings.temporal;
  if (error instanceof DomainError) {
    return fail(
      `${error.message}${causeOf(error)}`,
      "start Temporal, or mend TEMPORAL_ADDRESS (or the profile); then TLS and API key",
    );
  }
  const { code } = serviceError(error);
  if (code === NOT_FOUND) {
    return fail(
      `namespace ${namespace} does not exist at ${address}`,
      `${temporalCommand(settings, "operator namespace create", "--retention 720h")}, or mend TEMPORAL_NAMESPACE`,
    );
  }
  if (code === PERMISSION_DENIED || code === UNAUTHENTICATED) {
    return fail(
      "Temporal denies it",
      "give the key or certificate the right to read this namespace: TEMPORAL_API_KEY, TEMPORAL_TLS_…",
    );
  }
  return fail(
    `Temporal did not answer this (gRPC code ${code ?? "unknown"})`,
    "see Temporal's log; then run it again",
  );
}

/** Of the kind of failure the name alone: its text may quote metadata. */
function causeOf({ cause }: DomainError): string {
  return cause instanceof Error && cause.name !== "Error" ? ` (${cause.name})` : "";
}

function serviceError(error: unknown): { code: number | null } {
  const candidates = [error, (error as { cause?: unknown } | null)?.cause];
  const found = candidates.find((candidate) => isGrpcServiceError(candidate));
  return { code: isGrpcServiceError(found) ? found.code : null };
}

async function judgeSearchAttributes({
  settings,
  client,
  namespace,
  ask,
}: TemporalContext): Promise<Finding> {
  const { customAttributes } = await ask(
    async () => await client.connection.operatorService.listSearchAttributes({ namespace }),
  );
  const missing = SEARCH_ATTRIBUTES.filter((name) => customAttributes[name] === undefined);
  const other = SEARCH_ATTRIBUTES.filter((name) => (customAttributes[name] ?? KEYWORD) !== KEYWORD);
  if (missing.length > 0) {
    return fail(
      `missing: ${missing.join(", ")}; no payment can start`,
      searchAttributeCommand("create", { settings, names: missing }),
    );
  }
  if (other.length > 0) {
    const commands = (["remove", "create"] as const).map((action) =>
      searchAttributeCommand(action, { settings, names: other }),
    );
    return fail(`not of type Keyword: ${other.join(", ")}`, commands.join(" && "));
  }
  return ok(`${SEARCH_ATTRIBUTES.length} of type Keyword`);
}

function searchAttributeCommand(
  action: "create" | "remove",
  { settings, names }: { settings: Settings; names: readonly string[] },
): string {
  const words = names.map((name) =>
    action === "create" ? `--name ${name} --type Keyword` : `--name ${name}`,
  );
  const assent = action === "remove" ? " --yes" : "";
  return temporalCommand(settings, `operator search-attribute ${action}`, words.join(" ") + assent);
}

async function judgeSchedules({ settings, client, ask, now }: TemporalContext): Promise<Finding> {
  const states = await Promise.all(
    Object.values(scheduleIds).map(async (id) => {
      try {
        const { state, info } = await ask(
          async () => await client.schedule.getHandle(id).describe(),
        );
        const [next] = info.nextActionTimes;
        const isLate = next !== undefined && now() - next.getTime() > SCHEDULE_LATE_MS;
        return { id, state: state.paused ? "paused" : isLate ? "late" : "kept" } as const;
      } catch (error) {
        if (!(error instanceof ScheduleNotFoundError)) throw error;
        return { id, state: "missing" } as const;
      }
    }),
  );
  const of = (wanted: string): string[] =>
    states.filter(({ state }) => state === wanted).map(({ id }) => id);
  const [missing, paused, late] = [of("missing"), of("paused"), of("late")];
  if (missing.length > 0) {
    return fail(
      `missing: ${missing.join(", ")}`,
      "start a worker with the role payments: it makes them (remit worker)",
    );
  }
  if (paused.length > 0) {
    const commands = paused.map((id) =>
      temporalCommand(
        settings,
        "schedule toggle",
        `--schedule-id ${id} --unpause --reason "remit doctor"`,
      ),
    );
    return fail(`paused: ${paused.join(", ")}`, commands.join("; "));
  }
  if (late.length > 0) {
    return fail(`not kept: ${late.join(", ")}`, "see Temporal's own worker service and its log");
  }
  return ok(states.map(({ id }) => id).join(", "));
}

async function judgeDeployment({
  client,
  namespace,
  ask,
  settings,
}: TemporalContext): Promise<Finding> {
  const { deploymentName, buildId } = settings.worker;
  const current = await currentBuild({ client, namespace, ask }, deploymentName);
  if (current === undefined) {
    if (buildId === null) return ok("builds are not versioned (REMIT_BUILD_ID is not set)");
    return fail(
      `no worker of deployment ${deploymentName} has come to Temporal yet`,
      `start a worker with REMIT_BUILD_ID=${buildId}`,
    );
  }
  const setCurrent = (build: string): string =>
    temporalCommand(
      settings,
      "worker deployment set-current-version",
      `--deployment-name ${deploymentName} --build-id ${build}`,
    );
  if (buildId === null) {
    if (current === null) return ok("builds are not versioned (REMIT_BUILD_ID is not set)");
    return warn(
      `new work goes to build ${current}, and a worker with these settings is of none`,
      "set REMIT_BUILD_ID, or give new work back to workers without one: see docs/deploy.md",
    );
  }
  if (current === buildId) return ok(`new work goes to build ${buildId}`);
  return warn(
    `new work goes to ${current === null ? "workers without a build" : `build ${current}`}, not to ${buildId}`,
    setCurrent(buildId),
  );
}

/** The build that gets new work; null for workers without one, undefined where there is no such deployment. */
async function currentBuild(
  { client, namespace, ask }: Pick<TemporalContext, "client" | "namespace" | "ask">,
  deploymentName: string,
): Promise<string | null | undefined> {
  try {
    const { workerDeploymentInfo } = await ask(
      async () =>
        await client.workflowService.describeWorkerDeployment({ namespace, deploymentName }),
    );
    return workerDeploymentInfo?.routingConfig?.currentDeploymentVersion?.buildId ?? null;
  } catch (error) {
    const isNoDeployment =
      serviceError(error).code === NOT_FOUND &&
      !/namespace/i.test(error instanceof Error ? error.message : "");
    if (isNoDeployment) return undefined;
    throw error;
  }
}
