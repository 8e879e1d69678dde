import { playRound } from "./barrier.ts";
import type { Operation, Round } from "./barrier.ts";
import type { TestDatabase } from "./database.ts";
import { openScene } from "./money-operations.ts";
import type { Scene } from "./money-operations.ts";
import { statementsOf } from "./statements.ts";

/** What both decided, and "posted/held" of payer and seller then. */
export interface Outcome {
  readonly stopped: string;
  readonly rival: string;
  readonly payer: string;
  readonly seller: string;
}

/** Two operations of which one is stopped. */
export interface Contest {
  /** Sets the scene and names the two; called for each round. */
  readonly between: (scene: Scene) => Promise<[stopped: Operation, rival: Operation]>;
  /** Where the stopped one comes first, and where the rival does. */
  readonly first: Outcome;
  readonly second: Outcome;
  /** Stopping the other one would be the same contest, or is a contest of its own. */
  readonly isOneWay?: boolean;
}

export const outcome = (
  stopped: string,
  rival: string,
  payer: string,
  seller: string,
): Outcome => ({ stopped, rival, payer, seller });

/** A contest for either being stopped. */
export function bothWays(contests: Record<string, Contest>): [string, Contest][] {
  return Object.entries(contests).flatMap(([name, contest]): [string, Contest][] =>
    contest.isOneWay === true
      ? [[name, contest]]
      : [
          [`${name}, the first one stopped`, contest],
          [`${name}, the second one stopped`, turned(contest)],
        ],
  );
}

function turned({ between, first, second }: Contest): Contest {
  const turn = ({ stopped, rival, ...money }: Outcome): Outcome => ({
    stopped: rival,
    rival: stopped,
    ...money,
  });
  return {
    between: async (scene) => {
      const [stopped, rival] = await between(scene);
      return [rival, stopped];
    },
    first: turn(second),
    second: turn(first),
  };
}

/** A round for every point at which the one can be stopped, each in a scene of its own, with the money as it stands then. */
export async function playContest(
  database: TestDatabase,
  { between }: Contest,
): Promise<(Round & Outcome)[]> {
  const [alone] = await between(await openScene(database));
  const statements = await statementsOf(database.app, alone);
  const played: (Round & Outcome)[] = [];
  for (const position of statements.keys()) {
    const scene = await openScene(database);
    const [stopped, rival] = await between(scene);
    const round = await playRound(database, { stopped, rival, position });
    const [payer, seller] = await scene.money();
    played.push({ ...round, payer, seller });
  }
  return played;
}

/** What a contest showed: rounds that ended in neither way, rounds with a conflict, and how the first and last one ended. */
export interface Judgement {
  readonly strange: readonly Round[];
  readonly conflicts: readonly Round[];
  readonly firstStop: Outcome | undefined;
  readonly lastStop: Outcome | undefined;
}

export function judge(played: readonly (Round & Outcome)[], { first, second }: Contest): Judgement {
  const allowed = [first, second].map((one) => JSON.stringify(one));
  return {
    strange: played.filter((round) => !allowed.includes(JSON.stringify(endOf(round)))),
    // Deadlocks and serialisation failures, be they retried.
    conflicts: played.filter(({ failures }) => failures.some((name) => name.startsWith("40"))),
    firstStop: played.slice(0, 1).map(endOf)[0],
    lastStop: played.slice(-1).map(endOf)[0],
  };
}

/** One comes after the other at every stop, and the stops do move who comes first. */
export function oneAfterTheOther({ first, second }: Contest): Judgement {
  return { strange: [], conflicts: [], firstStop: second, lastStop: first };
}

function endOf({ stopped, rival, payer, seller }: Outcome): Outcome {
  return { stopped, rival, payer, seller };
}
