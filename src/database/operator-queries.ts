import { v7 as uuidv7 } from "uuid";
import type { Tx } from "./database.ts";

/** What a person may do to messages by command. */
export type OperatorActionName =
  | "outbox.retry"
  | "outbox.skip"
  | "outbox.republish"
  | "outbox.republished"
  | "dlq.redrive"
  | "dlq.discard";

/** Who does it and why; `reason` has 1 to 500 characters. */
export interface Operator {
  readonly actor: string;
  readonly reason: string;
}

export interface OperatorAction extends Operator {
  readonly action: OperatorActionName;
  /** Null where what it was done to has no id that can be read. */
  readonly messageId: string | null;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** Records what is about to be done; written before a call to the broker, so that a crash leaves the trace and not the gap. */
export async function recordOperatorAction(tx: Tx, action: OperatorAction): Promise<void> {
  await tx.run(
    {
      name: "record_operator_action",
      text: `INSERT INTO remit.operator_actions (id, action, message_id, actor, reason, details)
             VALUES ($1, $2, $3, $4, $5, $6)`,
    },
    [
      uuidv7(),
      action.action,
      action.messageId,
      action.actor,
      action.reason,
      JSON.stringify(action.details ?? {}),
    ],
  );
}
