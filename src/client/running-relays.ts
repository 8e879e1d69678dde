import type { Client } from "@temporalio/client";
import { WORKFLOW_TYPES } from "../workflows/messages.ts";

/** The workflow ids of the relays that run; visibility is eventually consistent, so one may come or go late. */
export async function runningRelayIds(client: Client): Promise<string[]> {
  const ids: string[] = [];
  const query = `WorkflowType = '${WORKFLOW_TYPES.outboxRelay}' AND ExecutionStatus = 'Running'`;
  for await (const { workflowId } of client.workflow.list({ query })) ids.push(workflowId);
  return ids.toSorted();
}
