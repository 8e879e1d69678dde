import { LEDGER_FILTER, isSameAttribute } from "../../messaging/topology.ts";
import type { Subscription } from "../../messaging/topics.ts";
import { whyUnknown } from "./broker-context.ts";
import type { BrokerContext } from "./broker-context.ts";
import { fail, ok, warn } from "./check.ts";
import type { Check, Finding } from "./check.ts";

/** What leads from the topic to the ledger's queue. */
export const SUBSCRIPTION_CHECKS: readonly Check<BrokerContext>[] = [
  {
    name: "broker.subscription",
    about: "the ledger's queue is subscribed to the topic, and confirmed",
    judge: (context) => {
      const { facts, setup } = context;
      if (facts.topic.kind === "found" && facts.queue.kind === "found") {
        if (facts.subscription.kind === "missing") {
          return fail("the queue is not subscribed to the topic: nothing is booked", setup);
        }
      }
      return ofSubscription(context, ({ attributes }) =>
        attributes["PendingConfirmation"] === "true"
          ? fail("it waits for its confirmation", `confirm it as the queue's owner, or ${setup}`)
          : ok("subscribed and confirmed"),
      );
    },
  },
  {
    name: "broker.filter",
    about: "the filter lets through what the ledger books, and nothing else",
    judge: (context) => ofSubscription(context, (found) => judgeFilter(found, context.setup)),
  },
  {
    name: "broker.raw_delivery",
    about: "messages arrive as they are, not wrapped by SNS",
    judge: (context) =>
      ofSubscription(context, ({ attributes }) =>
        attributes["RawMessageDelivery"] === "true"
          ? ok("raw")
          : warn("wrapped by SNS: larger, and read all the same", context.setup),
      ),
  },
];

function judgeFilter({ attributes }: Subscription, setup: string): Finding {
  const scope = attributes["FilterPolicyScope"] ?? "MessageAttributes";
  if (scope !== "MessageAttributes") {
    return fail(`it filters by ${scope} instead of MessageAttributes`, setup);
  }
  const policy = attributes["FilterPolicy"] ?? null;
  if (isSameAttribute(policy, JSON.stringify(LEDGER_FILTER))) return ok("it is ours");
  return fail(
    `the filter is ${policy ?? "missing"}, which isn't ours: events may not be booked`,
    setup,
  );
}

function ofSubscription(
  { facts }: BrokerContext,
  judge: (subscription: Subscription) => Finding,
): Finding {
  const { subscription } = facts;
  const unknown = whyUnknown(subscription, "broker.subscription");
  return subscription.kind === "found" ? judge(subscription.part) : (unknown ?? ok(""));
}
