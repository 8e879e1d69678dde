import type { EnvReader } from "./env-reader.ts";
import type { StackFile } from "./stack-file.ts";

/** A variable that names a server or a place on one, and what the running stack has in its stead. */
interface TargetVariable {
  readonly name: string;
  readonly ofStack: (stack: StackFile) => string;
  readonly normalise: (value: string) => string;
}

const NO_PROFILE = "no profile";

/**
 * Only these make the environment "there". A region, a profile or credentials of AWS are in many shells and name no
 * target, so they never stand against a running stack, which doesn't use them either.
 */
const TARGET_VARIABLES: readonly TargetVariable[] = [
  { name: "DATABASE_URL", ofStack: (stack) => stack.databaseUrl, normalise: databaseOf },
  { name: "TEMPORAL_ADDRESS", ofStack: (stack) => stack.temporalAddress, normalise: hostOf },
  { name: "TEMPORAL_NAMESPACE", ofStack: (stack) => stack.temporalNamespace, normalise: same },
  // A profile can't be the stack's: that one has no profile.
  { name: "TEMPORAL_PROFILE", ofStack: () => NO_PROFILE, normalise: same },
  { name: "TEMPORAL_CONFIG_FILE", ofStack: () => NO_PROFILE, normalise: same },
  { name: "AWS_ENDPOINT_URL", ofStack: (stack) => stack.awsEndpointUrl, normalise: hostOf },
  { name: "REMIT_TOPIC_ARN", ofStack: (stack) => stack.topicArn, normalise: same },
  { name: "REMIT_LEDGER_QUEUE_URL", ofStack: (stack) => stack.ledgerQueueUrl, normalise: hostOf },
  { name: "REMIT_LEDGER_DLQ_URL", ofStack: (stack) => stack.ledgerDlqUrl, normalise: hostOf },
];

/** What each variable of a target is in the stack's stead; null where the stack has no such thing. */
export function stackValues(stack: StackFile): [name: string, value: string | null][] {
  const named = TARGET_VARIABLES.map(({ name, ofStack }): [string, string] => [
    name,
    ofStack(stack),
  ]);
  return [
    ...named.map(([name, value]): [string, string | null] => [
      name,
      value === NO_PROFILE ? null : value,
    ]),
    ["REMIT_ADMIN_DATABASE_URL", stack.adminDatabaseUrl],
    ["REMIT_TEMPORAL_UI_URL", stack.temporalUiUrl],
    ["TEMPORAL_API_KEY", null],
    ["TEMPORAL_TLS", "off"],
    ["AWS_REGION", stack.awsRegion],
    ["AWS_DEFAULT_REGION", null],
    ["AWS_PROFILE", null],
    // The stand-in's own, and no secret.
    ["AWS_ACCESS_KEY_ID", "set"],
    ["AWS_SECRET_ACCESS_KEY", "set"],
    ["AWS_SESSION_TOKEN", null],
  ];
}

/** Whether the environment names any target at all. */
export function hasTargets(reader: EnvReader): boolean {
  return TARGET_VARIABLES.some(({ name }) => reader.optional(name) !== null);
}

/** Each variable that names another target than the stack does, in words without secrets. */
export function targetConflicts(reader: EnvReader, stack: StackFile): string[] {
  return TARGET_VARIABLES.flatMap(({ name, ofStack, normalise }) => {
    const value = reader.optional(name);
    if (value === null) return [];
    const ours = normalise(value);
    const stacks = normalise(ofStack(stack));
    return ours === stacks ? [] : [`${name} is ${ours}, the stack's is ${stacks}`];
  });
}

function same(value: string): string {
  return value;
}

/** Who logs in doesn't make another target; and the password must not be shown. */
function databaseOf(url: string): string {
  if (!URL.canParse(url)) return "(not a URL)";
  const { hostname, port, pathname } = new URL(url);
  return `${loopback(hostname)}:${port === "" ? "5432" : port}${pathname}`;
}

function hostOf(value: string): string {
  const url = value.includes("://") ? value : `http://${value}`;
  if (!URL.canParse(url)) return "(not an address)";
  const { hostname, port, pathname } = new URL(url);
  return loopback(hostname) + (port === "" ? "" : `:${port}`) + pathname.replace(/\/$/, "");
}

function loopback(hostname: string): string {
  return hostname === "localhost" || hostname === "[::1]" ? "127.0.0.1" : hostname;
}
