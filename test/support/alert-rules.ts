import { readFileSync } from "node:fs";
import { parse } from "yaml";

export const RULES_FILE = "deploy/alerts/remit.rules.yaml";
export const RULES_TEST_FILE = "deploy/alerts/remit.rules.test.yaml";

export interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<"summary" | "description" | "runbook_url", string>>;
}

/** Every alert of the rule file, in its order. */
export function alertRules(): AlertRule[] {
  const { groups } = parse(readFileSync(RULES_FILE, "utf8")) as {
    groups: { rules: AlertRule[] }[];
  };
  return groups.flatMap(({ rules }) => rules);
}
