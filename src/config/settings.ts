import { join, resolve } from "node:path";
import { DomainError } from "../domain/errors.ts";
import { EnvReader } from "./env-reader.ts";
import type { Env } from "./env-reader.ts";
import { isProcessAlive, readStackFile } from "./stack-file.ts";
import type { StackFile } from "./stack-file.ts";
import { hasTargets, stackValues, targetConflicts } from "./targets.ts";
import { readTemporal } from "./temporal-settings.ts";
import type { TemporalSettings } from "./temporal-settings.ts";
import { readWorkerSettings } from "./worker-settings.ts";
import type { WorkerSettings } from "./worker-settings.ts";

/** Where everything is, all of it from one source. A part that the command doesn't need may be an empty string. */
export interface Settings {
  readonly source: "environment" | "stack";
  /** The stack's file, where that is the source. */
  readonly stackPath?: string;
  readonly databaseUrl: string;
  /** May change the schema. */
  readonly adminDatabaseUrl: string;
  readonly temporal: TemporalSettings;
  readonly aws: {
    readonly endpointUrl: string | null;
    readonly region: string;
    /** Only with the stack's stand-in; otherwise the SDK's default chain finds them. */
    readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string };
  };
  readonly topicArn: string;
  readonly ledgerQueueUrl: string;
  readonly ledgerDlqUrl: string;
  readonly worker: WorkerSettings;
  /** W3C Trace Context of what calls this command; its requests carry it on. */
  readonly traceparent: string | null;
}

/** What a command can't do without. Temporal has a default and is never missing; a region only where something is made. */
export type SettingsPart = "database" | "broker" | "region";

export interface LoadSettingsInput {
  readonly env: Env;
  readonly cwd: string;
  /** The flag `--data-dir`: names a stack, and as a flag goes before the environment. */
  readonly dataDir?: string | undefined;
  /** Everything, unless said. */
  readonly needs?: readonly SettingsPart[];
}

/**
 * Settings from the running stack of this folder as a whole, or from the environment as a whole.
 * @throws DomainError `usage` that names all problems at once, or both targets where they differ;
 * `database_unreachable` where the stack isn't running
 */
export function loadSettings(input: LoadSettingsInput): Settings {
  const reader = new EnvReader(input.env);
  const settings = readSettings(reader, input);
  reader.throwIfWrong();
  return settings;
}

/**
 * The same, with what is wrong left to the reader: a part that is wrong has its default, or is an empty string.
 * @throws DomainError where it can't be said which installation is meant
 */
export function readSettings(reader: EnvReader, input: LoadSettingsInput): Settings {
  const stackPath = join(resolve(input.cwd, input.dataDir ?? DEFAULT_DATA_DIR), STACK_FILE_NAME);
  const hasEnvironment = input.dataDir === undefined && hasTargets(reader);
  const stack = readStackFile(stackPath);
  if (stack !== null && isProcessAlive(stack.pid)) {
    if (hasEnvironment) assertSameTargets(reader, { stack, stackPath });
    for (const [name, value] of stackValues(stack)) {
      reader.resolved(name, value, { kind: "stack", where: stackPath });
    }
    return { ...settingsFromStack(stack), stackPath, ...readUntargeted(reader) };
  }
  if (hasEnvironment) return settingsFromEnvironment(reader, input);
  if (stack !== null || input.dataDir !== undefined) throw stackNotRunning(stackPath);
  return settingsFromEnvironment(reader, input);
}

export const DEFAULT_DATA_DIR = ".remit";
export const STACK_FILE_NAME = "stack.json";

/** What a client of this stack uses, with the stand-in's own credentials and never the caller's. */
export function settingsFromStack(stack: StackFile): Settings {
  return {
    source: "stack",
    databaseUrl: stack.databaseUrl,
    adminDatabaseUrl: stack.adminDatabaseUrl,
    temporal: {
      address: stack.temporalAddress,
      namespace: stack.temporalNamespace,
      uiUrl: stack.temporalUiUrl,
      connectionOptions: {},
    },
    aws: {
      endpointUrl: stack.awsEndpointUrl,
      region: stack.awsRegion,
      credentials: { accessKeyId: "local", secretAccessKey: "local" },
    },
    topicArn: stack.topicArn,
    ledgerQueueUrl: stack.ledgerQueueUrl,
    ledgerDlqUrl: stack.ledgerDlqUrl,
    ...readUntargeted(new EnvReader({})),
  };
}

/** What names no target holds with either source. */
function readUntargeted(reader: EnvReader): Pick<Settings, "worker" | "traceparent"> {
  return { worker: readWorkerSettings(reader), traceparent: reader.optional("TRACEPARENT") };
}

function assertSameTargets(
  reader: EnvReader,
  { stack, stackPath }: { stack: StackFile; stackPath: string },
): void {
  const conflicts = targetConflicts(reader, stack);
  if (conflicts.length === 0) return;
  throw new DomainError(
    "usage",
    `the environment and the running stack (${stackPath}) name different targets: ${conflicts.join("; ")}. ` +
      "Unset these variables, stop the stack, or say --data-dir to mean the stack",
    { details: { conflicts } },
  );
}

function stackNotRunning(stackPath: string): DomainError {
  return new DomainError(
    "database_unreachable",
    `the stack of this folder isn't running: npm start (looked at ${stackPath})`,
  );
}

function settingsFromEnvironment(
  reader: EnvReader,
  { env, needs = ["database", "broker"] }: LoadSettingsInput,
): Settings {
  const needed = (part: SettingsPart, name: string): string =>
    needs.includes(part)
      ? reader.required(name, { hint: NO_STACK })
      : (reader.optional(name) ?? "");
  needed("database", "DATABASE_URL");
  const databaseUrl = reader.url("DATABASE_URL", { protocols: POSTGRES_PROTOCOLS }) ?? "";
  const topicArn = needed("broker", "REMIT_TOPIC_ARN");
  const aws = readAws(reader, { topicArn });
  if (needs.includes("region") && !aws.isRegionSet && aws.endpointUrl === null) {
    reader.problem("AWS_REGION is not set, and nothing says in which region to make it");
  }
  return {
    source: "environment",
    databaseUrl,
    adminDatabaseUrl: readAdminDatabaseUrl(reader, databaseUrl),
    temporal: readTemporal(reader, env),
    aws: { endpointUrl: aws.endpointUrl, region: aws.region },
    topicArn,
    ledgerQueueUrl: needed("broker", "REMIT_LEDGER_QUEUE_URL"),
    ledgerDlqUrl: reader.optional("REMIT_LEDGER_DLQ_URL") ?? "",
    ...readUntargeted(reader),
  };
}

function readAdminDatabaseUrl(reader: EnvReader, databaseUrl: string): string {
  const name = "REMIT_ADMIN_DATABASE_URL";
  const url = reader.url(name, { protocols: POSTGRES_PROTOCOLS });
  if (url !== null) return url;
  if (databaseUrl !== "") {
    reader.resolved(name, databaseUrl, { kind: "environment", where: "DATABASE_URL" });
  }
  return databaseUrl;
}

function readAws(
  reader: EnvReader,
  { topicArn }: { topicArn: string },
): { endpointUrl: string | null; region: string; isRegionSet: boolean } {
  const endpointUrl = reader.url("AWS_ENDPOINT_URL", { protocols: HTTP_PROTOCOLS });
  const region = reader.optional("AWS_REGION");
  const otherRegion = reader.optional("AWS_DEFAULT_REGION");
  // Read by AWS's own library, and shown here: which identity it is matters as much as which region.
  reader.optional("AWS_PROFILE");
  for (const name of ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]) {
    reader.secret(name);
  }
  if (region !== null) return { endpointUrl, region, isRegionSet: true };
  if (otherRegion !== null) {
    const where = "AWS_DEFAULT_REGION";
    reader.resolved("AWS_REGION", otherRegion, { kind: "environment", where });
    return { endpointUrl, region: otherRegion, isRegionSet: true };
  }
  // An ARN names its region, and a topic of another one could not be reached.
  const regionOfTopic = topicArn.split(":")[3] || null;
  const found = regionOfTopic ?? DEFAULT_REGION;
  reader.resolved(
    "AWS_REGION",
    found,
    regionOfTopic === null
      ? { kind: "default", where: null }
      : { kind: "environment", where: "REMIT_TOPIC_ARN" },
  );
  return { endpointUrl, region: found, isRegionSet: false };
}

const DEFAULT_REGION = "us-east-1";
const POSTGRES_PROTOCOLS = ["postgres:", "postgresql:"];
const HTTP_PROTOCOLS = ["http:", "https:"];
const NO_STACK = ", and no stack runs in this folder (npm start)";
