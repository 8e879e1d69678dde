import { isGrpcCancelledError, isGrpcDeadlineError } from "@temporalio/client";
import type { Client, WorkflowHandle } from "@temporalio/client";
import { defaultPayloadConverter } from "@temporalio/common";
import type { Command } from "commander";
import { InvalidArgumentError } from "commander";
import type { PublishOutboxSummary } from "../activities/relay-progress.ts";
import { runningRelayIds } from "../client/running-relays.ts";
import { DomainError } from "../domain/errors.ts";
import {
  relayDrainUpdate,
  relayPauseUpdate,
  relayResumeUpdate,
  relaySetRateUpdate,
  relayStatusQuery,
} from "../workflows/messages.ts";
import type { RelayState } from "../workflows/messages.ts";
import { contextOf, withTemporal } from "./context.ts";
import { addCommand, addGroup } from "./options.ts";
import { terminalText } from "./terminal-text.ts";

/** `remit relay status|pause|resume|drain|set-rate`: each speaks to every relay that runs. */
export function registerRelay(program: Command): void {
  const relay = addGroup(program, "relay", "look at the relays and steer them");
  addRelayCommand(relay, {
    name: "status",
    about: "what each relay does, since when and why",
    examples: ["remit relay status --json"],
    ask: askStatus,
  });
  registerPause(relay);
  addRelayCommand(relay, {
    name: "resume",
    about: "publish again",
    examples: ["remit relay resume"],
    ask: askResume,
  });
  addRelayCommand(relay, {
    name: "drain",
    about: "finish the batch in hand and end the relay; within a minute a new one starts",
    examples: ["remit relay drain"],
    ask: async (handle) => await handle.executeUpdate(relayDrainUpdate),
  });
  registerSetRate(relay);
}

function registerPause(relay: Command): void {
  addCommand(relay, {
    name: "pause",
    about: "publish nothing until resume; events wait in the outbox",
    examples: ['remit relay pause --reason "broker maintenance"'],
  })
    .requiredOption("--reason <text>", "why; status shows it")
    .action(async ({ reason }: { reason: string }, command: Command) => {
      await askRelays(command, async (handle) => {
        return await handle.executeUpdate(relayPauseUpdate, { args: [{ reason }] });
      });
    });
}

function registerSetRate(relay: Command): void {
  addCommand(relay, {
    name: "set-rate <rate>",
    about: 'events per second at most, or "off" for no bound',
    examples: ["remit relay set-rate 100", "remit relay set-rate off"],
  }).action(async (rate: string, _options: unknown, command: Command) => {
    const eventsPerSecondMax = parseRate(rate);
    await askRelays(command, async (handle) => {
      return await handle.executeUpdate(relaySetRateUpdate, { args: [{ eventsPerSecondMax }] });
    });
  });
}

function parseRate(text: string): number | null {
  if (text === "off") return null;
  if (/^[1-9][0-9]{0,5}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('<rate>: expected a whole number from 1 to 999999, or "off"');
}

/** What the window that runs now reports by its heartbeat: a broker that is away stands nowhere else yet. */
async function withOutage(handle: WorkflowHandle, state: RelayState): Promise<RelayState> {
  const { raw } = await handle.describe();
  const payload = raw.pendingActivities?.[0]?.heartbeatDetails?.payloads?.[0];
  if (!payload || state.mode !== "running") return state;
  const {
    outage,
    outageSince,
    lostLeases = 0,
  } = defaultPayloadConverter.fromPayload<Partial<PublishOutboxSummary>>(payload);
  const now = { ...state, lostLeases: state.lostLeases + lostLeases };
  if (typeof outage !== "string" || typeof outageSince !== "string") return now;
  return { ...now, reason: `waits: ${outage}`, since: outageSince };
}

type AskRelay = (handle: WorkflowHandle) => Promise<RelayState>;

function addRelayCommand(
  relay: Command,
  command: { name: string; about: string; examples: readonly string[]; ask: AskRelay },
): void {
  addCommand(relay, command).action(async (_options: unknown, self: Command) => {
    await askRelays(self, command.ask);
  });
}

/** How a relay stands, or that nobody answers for it. */
export interface RelayAnswer {
  readonly workflowId: string;
  readonly state: RelayState["mode"] | "unreachable";
  readonly reason: string | null;
  readonly since: string | null;
  readonly lostLeases: number | null;
  readonly published: number | null;
  readonly eventsPerSecondMax: number | null;
}

async function askRelays(command: Command, ask: AskRelay): Promise<void> {
  const context = contextOf(command);
  const relays = await withTemporal(
    context.settings([]),
    async ({ client }) => await answersOfRelays(client, ask),
  );
  const isStatus = command.name() === "status";
  if (relays.length === 0 && !isStatus) {
    throw new DomainError("usage", "no relay runs, so there is none to steer: start a worker");
  }
  const unreachable = relays.filter(({ state }) => state === "unreachable");
  if (unreachable.length > 0 && !isStatus) {
    const ids = unreachable.map(({ workflowId }) => workflowId).join(", ");
    throw new DomainError("outcome_unknown", `no worker answered for ${ids}: start one and repeat`);
  }
  const text = relays.map(relayText).join("\n") || "no relay runs: start a worker";
  context.print({ json: { relays }, text });
}

/** How each relay that runs stands; a broker that is away is in its reason. */
export async function relayStatuses(client: Client): Promise<RelayAnswer[]> {
  return await answersOfRelays(client, askStatus);
}

/** Lets no relay publish until `resumeRelays`; answers when nothing more goes out. */
export async function pauseRelays(client: Client, reason: string): Promise<RelayAnswer[]> {
  return await answersOfRelays(
    client,
    async (handle) => await handle.executeUpdate(relayPauseUpdate, { args: [{ reason }] }),
  );
}

/** Ends a pause; for a relay that isn't paused it changes nothing. */
export async function resumeRelays(client: Client): Promise<RelayAnswer[]> {
  return await answersOfRelays(client, askResume);
}

async function askStatus(handle: WorkflowHandle): Promise<RelayState> {
  return await withOutage(handle, await handle.query(relayStatusQuery));
}

async function askResume(handle: WorkflowHandle): Promise<RelayState> {
  return await handle.executeUpdate(relayResumeUpdate);
}

async function answersOfRelays(client: Client, ask: AskRelay): Promise<RelayAnswer[]> {
  const ids = await runningRelayIds(client);
  return await Promise.all(ids.map(async (id) => await askRelay(client, id, ask)));
}

async function askRelay(client: Client, workflowId: string, ask: AskRelay): Promise<RelayAnswer> {
  try {
    const state = await client.withDeadline(
      Date.now() + ASK_TIMEOUT_MS,
      async () => await ask(client.workflow.getHandle(workflowId)),
    );
    const { mode, reason, since, lostLeases, published, eventsPerSecondMax } = state;
    return { workflowId, state: mode, reason, since, lostLeases, published, eventsPerSecondMax };
  } catch (error) {
    if (!isNoWorker(error)) throw error;
    return {
      workflowId,
      state: "unreachable",
      reason: "no worker answers for it",
      since: null,
      lostLeases: null,
      published: null,
      eventsPerSecondMax: null,
    };
  }
}

/** A relay's updates reach a running activity within 3 s; twice that, and nobody is there. */
const ASK_TIMEOUT_MS = 6_000;

function isNoWorker(error: unknown): boolean {
  const candidates = [error, (error as { cause?: unknown }).cause];
  return candidates.some(
    (candidate) =>
      isGrpcDeadlineError(candidate) ||
      isGrpcCancelledError(candidate) ||
      // FAILED_PRECONDITION: "no poller seen for task queue recently".
      (candidate as { code?: unknown } | undefined)?.code === 9,
  );
}

/** One line a relay, as `remit relay status` prints it. */
export function relayText(relay: RelayAnswer): string {
  const reason = relay.reason === null ? "" : ` (${terminalText(relay.reason)})`;
  const since = relay.since === null ? "" : ` since ${relay.since}`;
  const counts =
    relay.published === null
      ? ""
      : `, ${relay.published} published, ${relay.lostLeases} leases lost`;
  const rate =
    relay.eventsPerSecondMax === null ? "" : `, at most ${relay.eventsPerSecondMax} events/s`;
  return `${relay.workflowId}: ${relay.state}${reason}${since}${counts}${rate}`;
}
