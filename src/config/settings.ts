import { join, resolve } from "node:path";
import type { ConnectionOptions } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import { DomainError } from "../domain/errors.ts";
import { EnvReader } from "./env-reader.ts";
import type { Env } from "./env-reader.ts";
import { isProcessAlive, readStackFile } from "./stack-file.ts";
import type { StackFile } from "./stack-file.ts";
import { hasTargets, targetConflicts } from "./targets.ts";
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
  readonly temporal: {
    readonly address: string;
    readonly namespace: string;
    readonly uiUrl: string | null;
    /** TLS, API key and metadata; for `Connection.connect` and `NativeConnection.connect` alike. */
    readonly connectionOptions: TemporalConnectionOptions;
  };
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
}

export type TemporalConnectionOptions = Pick<ConnectionOptions, "tls" | "metadata"> & {
  readonly apiKey?: string;
};

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
  const stackPath = join(resolve(input.cwd, input.dataDir ?? DEFAULT_DATA_DIR), STACK_FILE_NAME);
  const hasEnvironment = input.dataDir === undefined && hasTargets(reader);
  const stack = readStackFile(stackPath);
  if (stack !== null && isProcessAlive(stack.pid)) {
    if (hasEnvironment) assertSameTargets(reader, { stack, stackPath });
    const worker = readWorkerSettings(reader);
    reader.throwIfWrong();
    return { ...settingsFromStack(stack), stackPath, worker };
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
    worker: readWorkerSettings(new EnvReader({})),
  };
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
  reader.url("DATABASE_URL", { protocols: POSTGRES_PROTOCOLS });
  const databaseUrl = needed("database", "DATABASE_URL");
  const adminDatabaseUrl =
    reader.url("REMIT_ADMIN_DATABASE_URL", { protocols: POSTGRES_PROTOCOLS }) ?? databaseUrl;
  const topicArn = needed("broker", "REMIT_TOPIC_ARN");
  const endpointUrl = reader.url("AWS_ENDPOINT_URL", { protocols: HTTP_PROTOCOLS });
  const region = reader.optional("AWS_REGION") ?? reader.optional("AWS_DEFAULT_REGION");
  if (needs.includes("region") && region === null && endpointUrl === null) {
    reader.problem("AWS_REGION is not set, and nothing says in which region to make it");
  }
  const settings: Settings = {
    source: "environment",
    databaseUrl,
    adminDatabaseUrl,
    temporal: readTemporal(reader, env),
    aws: {
      endpointUrl,
      // An ARN names its region, and a topic of another one could not be reached.
      region: region ?? (topicArn.split(":")[3] || "us-east-1"),
    },
    topicArn,
    ledgerQueueUrl: needed("broker", "REMIT_LEDGER_QUEUE_URL"),
    ledgerDlqUrl: reader.optional("REMIT_LEDGER_DLQ_URL") ?? "",
    worker: readWorkerSettings(reader),
  };
  reader.throwIfWrong();
  return settings;
}

function readTemporal(reader: EnvReader, env: Env): Settings["temporal"] {
  const uiUrl = reader.url("REMIT_TEMPORAL_UI_URL", { protocols: HTTP_PROTOCOLS });
  const fallback = { address: DEFAULT_TEMPORAL_ADDRESS, namespace: "default", uiUrl };
  try {
    const filled = Object.entries(env).filter(([, value]) => value !== undefined && value !== "");
    const profile = loadClientConnectConfig({
      overrideEnvVars: Object.fromEntries(filled) as Record<string, string>,
    });
    const { address, tls, metadata, apiKey } = profile.connectionOptions;
    return {
      address: address ?? fallback.address,
      namespace: profile.namespace ?? fallback.namespace,
      uiUrl,
      connectionOptions: {
        ...(tls === undefined ? {} : { tls }),
        ...(metadata === undefined ? {} : { metadata }),
        ...(typeof apiKey === "string" ? { apiKey } : {}),
      },
    };
  } catch {
    // The reason may quote the file, which holds keys.
    reader.problem(
      "Temporal's profile can't be read (TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE, TEMPORAL_TLS_…)",
    );
    return { ...fallback, connectionOptions: {} };
  }
}

const DEFAULT_TEMPORAL_ADDRESS = "localhost:7233";
const POSTGRES_PROTOCOLS = ["postgres:", "postgresql:"];
const HTTP_PROTOCOLS = ["http:", "https:"];
const NO_STACK = ", and no stack runs in this folder (npm start)";
