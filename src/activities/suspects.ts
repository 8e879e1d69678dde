import type { ClaimedRow, FailedRow } from "../database/outbox-queries.ts";

/** The rows of each aggregate in the order of their versions. */
export type AggregateQueues = Map<string, ClaimedRow[]>;

/** A claim without a result may be a crash that had nothing to do with the row; this many can't be by chance. */
const UNEXPLAINED_CLAIMS_MAX = 3;
/** Alone in flight this often and never a result: the row kills its worker. */
const CLAIMS_ALONE_MAX = 7;

/** What a batch sends together, what it sends alone after that, what it buries, and what it gives back at once. */
export interface SuspectsApart {
  readonly queues: AggregateQueues;
  readonly suspect: ClaimedRow | null;
  readonly buried: readonly FailedRow[];
  readonly apart: readonly string[];
}

/**
 * Finds the row that kills its worker among those that were in flight with it: suspects go out one at a time, the least
 * suspect first, so that soon only the killer's claims grow. What stands behind a suspect in its aggregate waits.
 */
export function setSuspectsApart(rows: readonly ClaimedRow[]): SuspectsApart {
  const queues = queuesByAggregate(rows);
  const heads: ClaimedRow[] = [];
  const apart: string[] = [];
  const buried: FailedRow[] = [];
  for (const [aggregate, queue] of queues) {
    const at = queue.findIndex((row) => unexplainedClaims(row) > 0);
    const found = queue[at];
    if (found === undefined) continue;
    const others = queue.slice(at + 1).map(({ messageId }) => messageId);
    apart.push(...others);
    if (at > 0) {
      queues.set(aggregate, queue.slice(0, at));
      apart.push(found.messageId);
      continue;
    }
    queues.delete(aggregate);
    if (unexplainedClaims(found) > CLAIMS_ALONE_MAX) buried.push(burial(found));
    else heads.push(found);
  }
  heads.sort((left, right) => unexplainedClaims(left) - unexplainedClaims(right));
  const [suspect = null, ...others] = heads;
  return { queues, suspect, buried, apart: [...apart, ...others.map((row) => row.messageId)] };
}

/** How many claims more than chance explains ended without mark, failure or give-back; the running one isn't counted. */
export function unexplainedClaims({ claims, attempts }: ClaimedRow): number {
  return Math.max(0, claims - 1 - attempts - UNEXPLAINED_CLAIMS_MAX + 1);
}

export function queuesByAggregate(rows: readonly ClaimedRow[]): AggregateQueues {
  const inOrder = rows.toSorted((left, right) =>
    Number(BigInt(left.aggregateVersion) - BigInt(right.aggregateVersion)),
  );
  return Map.groupBy(
    inOrder,
    ({ aggregateType, aggregateId }) => `${aggregateType}:${aggregateId}`,
  );
}

function burial({ messageId, claims }: ClaimedRow): FailedRow {
  const error = `claimed ${claims} times, the last ones alone, and never a result: it seems to end the worker that sends it`;
  return { messageId, error, retryInMs: null };
}
