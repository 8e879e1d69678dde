import type { Database, Tx } from "../../src/database/database.ts";
import { claimRows, cursorAtStart } from "../../src/database/outbox-queries.ts";

export interface PlanNode {
  readonly node: string;
  readonly relation: string | undefined;
  readonly index: string | undefined;
}

interface RawNode {
  "Node Type": string;
  "Relation Name"?: string;
  "Index Name"?: string;
  Plans?: RawNode[];
}

/** The plan of the claim as the relay runs it, by EXPLAIN of the very statement. */
export async function captureClaimPlan(database: Database): Promise<PlanNode[]> {
  const nodes: PlanNode[] = [];
  const explaining: Tx = {
    run: async ({ text }, values) => {
      const result = await database.pool.query<{ "QUERY PLAN": [{ Plan: RawNode }] }>(
        `EXPLAIN (FORMAT JSON) ${text}`,
        [...values],
      );
      const plan = result.rows[0]?.["QUERY PLAN"][0].Plan;
      if (plan !== undefined) nodes.push(...flatten(plan));
      return [];
    },
  };
  await claimRows(explaining, {
    fromShard: 0,
    toShard: 63,
    cursor: cursorAtStart(0),
    rowsMax: 100,
    rowsPerAggregateMax: 10,
    leaseToken: "00000000-0000-4000-8000-000000000000",
    leaseMs: 1_000,
  });
  return nodes;
}

function flatten(node: RawNode): PlanNode[] {
  const own = {
    node: node["Node Type"],
    relation: node["Relation Name"],
    index: node["Index Name"],
  };
  return [own, ...(node.Plans ?? []).flatMap(flatten)];
}
