import { InvalidArgumentError } from "commander";
import type { Command } from "commander";
import type { Settings } from "../config/settings.ts";
import { setUpTopology } from "../messaging/topology.ts";
import type { TopologyChange, TopologyReport } from "../messaging/topology.ts";
import { contextOf } from "./context.ts";
import { addCommand, addGroup } from "./options.ts";

/** `remit aws setup`. */
export function registerAws(program: Command): void {
  const group = addGroup(program, "aws", "topic and queues on AWS or on a stand-in");
  addCommand(group, {
    name: "setup",
    about: "create or mend topic, queues, policies and subscription; prints the settings for them",
    examples: [
      "AWS_REGION=eu-central-1 remit aws setup --dry-run",
      "AWS_REGION=eu-central-1 AWS_PROFILE=payments remit aws setup --prefix pay-live",
    ],
  })
    .option("--prefix <prefix>", "what their names begin with", parsePrefix, "remit")
    .option("--fifo", "a FIFO topic and FIFO queues: order on the wire, at less throughput", false)
    .option("--dry-run", "say what would change, and change nothing", false)
    .action(async (options: SetupOptions, command: Command) => {
      const context = contextOf(command);
      const { aws } = context.settings(["region"]);
      const report = await setUpTopology(aws, options);
      const environment = environmentFor(aws, report);
      const { changes } = report;
      context.print({
        json: { ...options, changed: changes.length > 0 && !options.dryRun, changes, environment },
        text: [...changes.map(changeText(options)), summary(options, report), ""]
          .concat(environmentText(environment))
          .join("\n")
          .trimEnd(),
      });
    });
}

interface SetupOptions {
  readonly prefix: string;
  readonly fifo: boolean;
  readonly dryRun: boolean;
}

/** Topic and queue names are at most 80 characters, and ours add up to 16. */
function parsePrefix(text: string): string {
  if (/^[A-Za-z0-9_-]{1,64}$/.test(text)) return text;
  throw new InvalidArgumentError("expected 1 to 64 of A-Z, a-z, 0-9, - and _");
}

/** What a worker's environment must hold to use it; null where it doesn't exist yet. */
function environmentFor(
  { endpointUrl, region }: Settings["aws"],
  { topology }: TopologyReport,
): Record<string, string> | null {
  if (topology === null) return null;
  return {
    ...(endpointUrl === null ? {} : { AWS_ENDPOINT_URL: endpointUrl }),
    AWS_REGION: region,
    REMIT_TOPIC_ARN: topology.topicArn,
    REMIT_LEDGER_QUEUE_URL: topology.ledgerQueueUrl,
    REMIT_LEDGER_DLQ_URL: topology.ledgerDlqUrl,
  };
}

function changeText({ dryRun }: { dryRun: boolean }): (change: TopologyChange) => string {
  const verb = dryRun
    ? { create: "would create", change: "would change" }
    : { create: "created", change: "changed" };
  return ({ resource, action, attribute, from, to }) =>
    action === "create"
      ? `${verb.create}  ${resource}`
      : `${verb.change}  ${resource}: ${attribute} ${from ?? "(none)"} → ${to}`;
}

function summary({ dryRun }: { dryRun: boolean }, { changes }: TopologyReport): string {
  if (changes.length === 0) return "nothing changed: all is as it should be";
  return dryRun ? `${changes.length} changes, none made` : `${changes.length} changes made`;
}

function environmentText(environment: Record<string, string> | null): string[] {
  if (environment === null) return [];
  const lines = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  return ["# for the environment of every worker:", ...lines];
}
