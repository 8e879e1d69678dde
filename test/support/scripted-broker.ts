import type { OutgoingMessage, PublishResult } from "../../src/messaging/sns-publisher.ts";

export interface ScriptedBroker {
  /** The ids that it took, in the order in which it took them. */
  readonly sent: string[];
  readonly publish: (messages: readonly OutgoingMessage[]) => Promise<PublishResult[]>;
  readonly isReachable: () => Promise<boolean>;
}

/** A broker that accepts everything but what `refuse` names, and remembers the order of what it took. */
export function scriptedBroker(
  refuse: (message: OutgoingMessage) => PublishResult["kind"] = () => "accepted",
  { isReachable = true } = {},
): ScriptedBroker {
  const sent: string[] = [];
  return {
    sent,
    isReachable: async () => await Promise.resolve(isReachable),
    publish: async (messages) =>
      await Promise.resolve(
        messages.map((message): PublishResult => {
          const kind = refuse(message);
          const { messageId } = message;
          if (kind !== "accepted") return { kind, messageId, error: `${kind} on purpose` };
          sent.push(messageId);
          return { kind, messageId, brokerMessageId: `sns-${messageId}` };
        }),
      ),
  };
}
