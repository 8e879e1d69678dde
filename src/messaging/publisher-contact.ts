import type { Publisher, PublishResult } from "./sns-publisher.ts";

/** What the last sends met; known without asking the broker. */
export interface PublisherContact {
  /** Null after a send that got through, and where nothing was sent yet. */
  readonly outage: () => { readonly error: string; readonly atMs: number } | null;
}

/** Passes everything on and remembers whether the broker took it. */
export function watchContact(publisher: Publisher): {
  readonly publisher: Publisher;
  readonly contact: PublisherContact;
} {
  let outage: { error: string; atMs: number } | null = null;
  const remember = (results: readonly PublishResult[]): void => {
    const missed = results.find(({ kind }) => kind === "outage");
    // A fault is an answer, too; throttling also stands for what wasn't sent at all, and says nothing.
    if (results.some(({ kind }) => kind === "accepted" || kind === "fault")) outage = null;
    else if (missed?.kind === "outage") outage = { error: missed.error, atMs: Date.now() };
  };
  return {
    contact: { outage: () => outage },
    publisher: {
      isReachable: publisher.isReachable,
      publish: async (messages, until) => {
        const results = await publisher.publish(messages, until);
        remember(results);
        return results;
      },
    },
  };
}
