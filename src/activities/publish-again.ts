import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "../domain/errors.ts";
import type {
  AcceptedMessage,
  OutgoingMessage,
  Publisher,
  UnsentMessage,
} from "../messaging/sns-publisher.ts";

/** Throttling passes by itself within seconds, and an operator's run is in no hurry. */
const TRIES = 5;
const THROTTLED_PAUSE_MS = 1_000;

/** SNS has the message, or refuses it for what it is, so that no repeat helps. */
export type Answer = AcceptedMessage | (UnsentMessage & { readonly kind: "fault" });

/**
 * Sends one message for an operator, and waits where SNS is busy.
 *
 * @throws DomainError `broker_unreachable` where SNS answers nothing that decides
 */
export async function publishAgain(
  publisher: Publisher,
  message: OutgoingMessage,
): Promise<Answer> {
  for (let attempt = 1; ; attempt += 1) {
    const [result] = await publisher.publish([message]);
    if (result?.kind === "accepted") return result;
    if (result?.kind === "fault") return { ...result, kind: "fault" };
    if (result?.kind !== "throttled" || attempt >= TRIES) {
      const why = result?.error ?? "no answer";
      throw new DomainError(
        "broker_unreachable",
        `SNS took no message ${message.messageId}: ${why}; it stays where it is`,
      );
    }
    await delay(THROTTLED_PAUSE_MS);
  }
}
