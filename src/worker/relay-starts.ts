import { WorkflowNotFoundError } from "@temporalio/client";
import type { Client } from "@temporalio/client";
import { runningRelayIds } from "../client/running-relays.ts";
import { rangeOfWorkflowId, workflowIds } from "../domain/ids.ts";
import type { RelayRange } from "../domain/ids.ts";
import {
  TASK_QUEUES,
  WORKFLOW_TYPES,
  relayDrainUpdate,
  relayStatusQuery,
} from "../workflows/messages.ts";
import type { OutboxRelayInput, RelayState } from "../workflows/messages.ts";
import { boundedCalls, startReplacing } from "./temporal-calls.ts";
import { WORKFLOW_TASK_TIMEOUT } from "./temporal-starts.ts";

/** What is asked of Temporal about relays. */
export interface RelayStarts {
  /**
   * Starts the range's relay unless it runs; `state` is where it begins, null for running without a bound. What occupies
   * its id and is no relay of ours (another type, a task queue that nobody here serves) is ended and replaced.
   */
  readonly startRelay: (range: RelayRange, state: RelayState | null) => Promise<void>;
  readonly runningRelays: () => Promise<RelayRange[]>;
  readonly relayState: (range: RelayRange) => Promise<RelayState>;
  /** Has it finish what it has in hand and end; resolves when it has taken that up, or has ended. */
  readonly drainRelay: (range: RelayRange) => Promise<void>;
}

export function createRelayStarts(client: Client): RelayStarts {
  const bounded = boundedCalls(client);
  return {
    startRelay: async (range, state) => {
      const input: OutboxRelayInput = state === null ? range : { ...range, state };
      const place = { type: WORKFLOW_TYPES.outboxRelay, taskQueue: TASK_QUEUES.relay };
      const workflowId = workflowIds.outboxRelay(range);
      await startReplacing(
        bounded,
        { handle: client.workflow.getHandle(workflowId), place },
        async () =>
          await client.workflow.start(place.type, {
            workflowId,
            taskQueue: place.taskQueue,
            args: [input],
            workflowIdConflictPolicy: "USE_EXISTING",
            workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
            staticSummary: `publishes the outbox, shards ${range.fromShard} to ${range.toShard}`,
          }),
      );
    },
    runningRelays: async () => {
      const ids = await bounded(async () => await runningRelayIds(client));
      return ids.flatMap((id) => rangeOfWorkflowId(id) ?? []);
    },
    relayState: async (range) => {
      const handle = client.workflow.getHandle(workflowIds.outboxRelay(range));
      return await bounded(async () => await handle.query(relayStatusQuery));
    },
    drainRelay: async (range) => {
      const handle = client.workflow.getHandle(workflowIds.outboxRelay(range));
      try {
        await bounded(
          async () =>
            await handle.startUpdate(relayDrainUpdate, {
              updateId: "drain",
              waitForStage: "ACCEPTED",
            }),
        );
      } catch (error) {
        if (!(error instanceof WorkflowNotFoundError)) throw error;
      }
    },
  };
}
