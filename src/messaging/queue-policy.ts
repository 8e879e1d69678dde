interface Statement {
  readonly Effect?: string;
  readonly Principal?: unknown;
  readonly Action?: string | readonly string[];
  readonly Resource?: string | readonly string[];
  readonly Condition?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/**
 * Whether a statement lets SNS send for this topic; ours, or another one to the same end. What it can't tell: a Deny with
 * conditions of its own, and the organisation's policies.
 */
export function letsTopicSend(
  policy: string | undefined,
  { queueArn, topicArn }: { queueArn: string; topicArn: string },
): boolean {
  const statements = statementsOf(policy);
  const concerned = statements.filter(
    ({ Action, Resource }) =>
      listOf(Action).some((action) => matches(action.toLowerCase(), "sqs:sendmessage")) &&
      (Resource === undefined || listOf(Resource).some((arn) => matches(arn, queueArn))),
  );
  const isDenied = concerned.some(
    ({ Effect, Condition, Principal }) =>
      Effect === "Deny" && Condition === undefined && isSns(Principal),
  );
  const isAllowed = concerned.some(
    ({ Effect, Condition, Principal }) =>
      Effect === "Allow" && isSns(Principal) && isForTopic(Condition, topicArn),
  );
  return isAllowed && !isDenied;
}

function statementsOf(policy: string | undefined): readonly Statement[] {
  if (policy === undefined || policy === "") return [];
  try {
    const { Statement: found } = JSON.parse(policy) as { Statement?: Statement | Statement[] };
    return found === undefined ? [] : Array.isArray(found) ? found : [found];
  } catch {
    return [];
  }
}

function isSns(principal: unknown): boolean {
  if (principal === "*") return true;
  if (typeof principal !== "object" || principal === null) return false;
  const { Service, AWS } = principal as { Service?: string | string[]; AWS?: string | string[] };
  return listOf(Service).includes("sns.amazonaws.com") || listOf(AWS).includes("*");
}

/** By aws:SourceArn where it says one; any other condition is taken to hold. */
function isForTopic(condition: Statement["Condition"], topicArn: string): boolean {
  const arns = Object.values(condition ?? {}).flatMap((operator) =>
    Object.entries(operator)
      .filter(([key]) => key.toLowerCase() === "aws:sourcearn")
      .flatMap(([, value]) => listOf(value as string | string[])),
  );
  return arns.length === 0 || arns.some((arn) => matches(arn, topicArn));
}

/** `*` stands for anything, as in AWS's policies. */
function matches(pattern: string, value: string): boolean {
  const escaped = pattern.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*");
  return new RegExp(`^${escaped}$`).test(value);
}

function listOf(value: string | readonly string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return typeof value === "string" ? [value] : value;
}
