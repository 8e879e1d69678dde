import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspectSettings, showSettings } from "../../src/config/inspect-settings.ts";
import { loadSettings } from "../../src/config/settings.ts";
import type { LoadSettingsInput } from "../../src/config/settings.ts";
import { DomainError } from "../../src/domain/errors.ts";
import { documentedVariables, isVariable } from "../support/variables.ts";

const STACK = {
  databaseUrl: "postgres://remit_app:local@127.0.0.1:5433/remit",
  adminDatabaseUrl: "postgres://postgres:local@127.0.0.1:5433/remit",
  temporalAddress: "127.0.0.1:7234",
  temporalNamespace: "default",
  temporalUiUrl: "http://127.0.0.1:8234",
  awsEndpointUrl: "http://127.0.0.1:4567",
  awsRegion: "eu-central-1",
  topicArn: "arn:aws:sns:eu-central-1:000000000000:remit-events",
  ledgerQueueUrl: "http://127.0.0.1:4567/000000000000/remit-ledger",
  ledgerDlqUrl: "http://127.0.0.1:4567/000000000000/remit-ledger-dlq",
  pid: process.pid,
  processes: [{ name: "postgres", pid: process.pid }],
};
const ENVIRONMENT = {
  DATABASE_URL: "postgres://app:s3cret@db.example/remit",
  REMIT_TOPIC_ARN: "arn:aws:sns:us-west-2:111111111111:remit-events",
  REMIT_LEDGER_QUEUE_URL: "https://sqs.us-west-2.amazonaws.com/111111111111/remit-ledger",
};
/** Beyond Linux's highest process id. */
const DEAD_PID = 2 ** 22 + 1;

let cwd: string;

beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), "remit-settings-"));
});

afterEach(() => {
  rmSync(cwd, { recursive: true });
});

function writeStack(stack: unknown, folder = ".remit"): void {
  mkdirSync(join(cwd, folder), { recursive: true });
  writeFileSync(join(cwd, folder, "stack.json"), JSON.stringify(stack));
}

function load(input: Partial<LoadSettingsInput> = {}): ReturnType<typeof loadSettings> {
  return loadSettings({ env: {}, cwd, ...input });
}

function refusalOf(input: Partial<LoadSettingsInput>): DomainError {
  try {
    load(input);
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

describe("settings from the running stack", () => {
  test("are the stack's as a whole, with its stand-in's own credentials", () => {
    writeStack(STACK);
    const settings = load();
    expect(settings).toMatchObject({
      source: "stack",
      stackPath: join(cwd, ".remit", "stack.json"),
      databaseUrl: STACK.databaseUrl,
      adminDatabaseUrl: STACK.adminDatabaseUrl,
      temporal: { address: STACK.temporalAddress, uiUrl: STACK.temporalUiUrl },
      topicArn: STACK.topicArn,
    });
    expect(settings.aws).toEqual({
      endpointUrl: STACK.awsEndpointUrl,
      region: "eu-central-1",
      credentials: { accessKeyId: "local", secretAccessKey: "local" },
    });
  });

  test("never use the caller's AWS region, profile or keys, which name no target", () => {
    writeStack(STACK);
    const env = {
      AWS_REGION: "us-east-1",
      AWS_PROFILE: "production",
      AWS_ACCESS_KEY_ID: "AKIA",
      AWS_SECRET_ACCESS_KEY: "s3cret",
      TEMPORAL_API_KEY: "s3cret",
    };
    expect(JSON.stringify(load({ env }))).not.toMatch(/us-east-1|production|AKIA|s3cret/);
  });

  test("take the worker's knobs from the environment, which name no target either", () => {
    writeStack(STACK);
    const env = { REMIT_POLL_INTERVAL_MS: "100", REMIT_LOG_LEVEL: "debug" };
    expect(load({ env }).worker).toMatchObject({ pollIntervalMs: 100, logLevel: "debug" });
  });

  test.each([
    ["DATABASE_URL", "postgres://app:s3cret@127.0.0.1:5432/remit"],
    ["TEMPORAL_ADDRESS", "temporal.example:7233"],
    ["TEMPORAL_NAMESPACE", "payments"],
    ["TEMPORAL_PROFILE", "cloud"],
    ["AWS_ENDPOINT_URL", "http://127.0.0.1:4566"],
    ["REMIT_TOPIC_ARN", "arn:aws:sns:us-west-2:111111111111:remit-events"],
    ["REMIT_LEDGER_QUEUE_URL", "http://127.0.0.1:4567/000000000000/other"],
  ])("are refused beside a %s of another target, naming both without secrets", (name, value) => {
    writeStack(STACK);
    const { code, message } = refusalOf({ env: { [name]: value } });
    expect(code).toBe("usage");
    expect(message).toContain(name);
    expect(message).toContain("stack.json");
    expect(message).not.toMatch(/s3cret|local@/);
  });

  test("stand beside an environment that names the same targets", () => {
    writeStack(STACK);
    const env = {
      DATABASE_URL: "postgresql://other:login@localhost:5433/remit",
      TEMPORAL_ADDRESS: "localhost:7234",
      AWS_ENDPOINT_URL: "http://localhost:4567/",
    };
    expect(load({ env }).source).toBe("stack");
  });

  test("go before the environment where --data-dir names the stack", () => {
    writeStack(STACK, "elsewhere");
    const settings = load({ env: ENVIRONMENT, dataDir: "elsewhere" });
    expect(settings.databaseUrl).toBe(STACK.databaseUrl);
  });

  test("are not those of a stack whose process is dead", () => {
    writeStack({ ...STACK, pid: DEAD_PID });
    const refusal = refusalOf({});
    expect(refusal.code).toBe("database_unreachable");
    expect(refusal.message).toContain("the stack of this folder isn't running: npm start");
    expect(load({ env: ENVIRONMENT }).source).toBe("environment");
  });

  test.each(["{", "{}", "[]", ""])("are not read from a damaged file (%p)", (text) => {
    writeStack(STACK);
    writeFileSync(join(cwd, ".remit", "stack.json"), text);
    expect(refusalOf({})).toMatchObject({ code: "usage" });
  });
});

describe("settings from the environment", () => {
  test("are the environment's as a whole, with defaults", () => {
    expect(load({ env: ENVIRONMENT })).toMatchObject({
      source: "environment",
      databaseUrl: ENVIRONMENT.DATABASE_URL,
      adminDatabaseUrl: ENVIRONMENT.DATABASE_URL,
      temporal: { address: "localhost:7233", namespace: "default", uiUrl: null },
      aws: { endpointUrl: null, region: "us-west-2" },
      worker: {
        relayRanges: 1,
        databasePoolMax: 10,
        pollIntervalMs: 2_000,
        leaseMs: 10_000,
        sendTimeoutMs: 3_000,
        logLevel: "info",
        deploymentName: "remit",
        buildId: null,
      },
    });
  });

  test("take TLS, key and namespace as Temporal's own tools do", () => {
    const env = {
      ...ENVIRONMENT,
      TEMPORAL_ADDRESS: "eu.tmprl.cloud:7233",
      TEMPORAL_NAMESPACE: "pay.abc",
      TEMPORAL_API_KEY: "s3cret",
    };
    expect(load({ env }).temporal).toEqual({
      address: "eu.tmprl.cloud:7233",
      namespace: "pay.abc",
      uiUrl: null,
      connectionOptions: { tls: true, apiKey: "s3cret" },
    });
  });

  test("report all problems at once and no value", () => {
    const { code, message } = refusalOf({
      env: {
        DATABASE_URL: "mysql://app:s3cret@db/remit",
        REMIT_LEASE_MS: "20000",
        REMIT_SEND_TIMEOUT_MS: "1O0",
        REMIT_LOG_LEVEL: "loud",
        TEMPORAL_PROFILE: "absent",
      },
    });
    expect(code).toBe("usage");
    for (const name of [
      "DATABASE_URL",
      "REMIT_TOPIC_ARN",
      "REMIT_LEDGER_QUEUE_URL",
      "REMIT_LEASE_MS",
      "REMIT_SEND_TIMEOUT_MS",
      "REMIT_LOG_LEVEL",
      "TEMPORAL_PROFILE",
    ]) {
      expect(message).toContain(name);
    }
    expect(message).not.toMatch(/s3cret|1O0|loud|absent/);
  });

  test("say how to start a stack where nothing is set; empty counts as not set", () => {
    expect(refusalOf({ env: { DATABASE_URL: " " } }).message).toContain("npm start");
  });

  test("ask a command for no more than it needs", () => {
    const settings = load({ env: { DATABASE_URL: ENVIRONMENT.DATABASE_URL }, needs: ["database"] });
    expect(settings.topicArn).toBe("");
    expect(load({ needs: [] }).temporal.address).toBe("localhost:7233");
  });

  test("take a build's name as Temporal can spell it", () => {
    const env = { ...ENVIRONMENT, REMIT_BUILD_ID: "v1:2", REMIT_DEPLOYMENT_NAME: "re.mit" };
    const { message } = refusalOf({ env });
    expect(message).toContain("REMIT_BUILD_ID");
    expect(message).toContain("REMIT_DEPLOYMENT_NAME");
  });

  test("let no send outlive its lease", () => {
    const env = { ...ENVIRONMENT, REMIT_LEASE_MS: "3000" };
    expect(refusalOf({ env }).message).toContain("REMIT_SEND_TIMEOUT_MS");
  });
});

describe("every setting that is documented", () => {
  test.each([
    ["the environment", () => ENVIRONMENT],
    ["nothing at all", () => ({})],
    [
      "the stack",
      () => {
        writeStack(STACK);
        return {};
      },
    ],
  ])("is shown once, where %s says it", (_source, arrange) => {
    const { shown } = showSettings({ env: arrange(), cwd, needs: [] });
    expect(shown.map(({ name }) => name)).toEqual(documentedVariables().toSorted());
  });

  test("says which variable, file, profile or default it comes from", () => {
    const file = join(cwd, "temporal.toml");
    const profile = '[profile.cloud]\naddress = "cloud:7233"\napi_key = "s3cret"\n';
    writeFileSync(file, profile);
    const env = {
      ...ENVIRONMENT,
      TEMPORAL_CONFIG_FILE: file,
      TEMPORAL_PROFILE: "cloud",
      TEMPORAL_NAMESPACE: "pay",
      REMIT_LEASE_MS: "9000",
      AWS_DEFAULT_REGION: "eu-west-1",
    };
    const { shown } = showSettings({ env, cwd, needs: [] });
    const of = (name: string): unknown => shown.find((setting) => setting.name === name);
    const setBy = (name: string, value: string, where = name): unknown => ({
      name,
      value,
      source: { kind: "environment", where },
    });
    const fromProfile = { kind: "profile", where: `${file}#cloud` };
    expect(of("TEMPORAL_NAMESPACE")).toEqual(setBy("TEMPORAL_NAMESPACE", "pay"));
    expect(of("REMIT_LEASE_MS")).toEqual(setBy("REMIT_LEASE_MS", "9000"));
    expect(of("AWS_REGION")).toEqual(setBy("AWS_REGION", "eu-west-1", "AWS_DEFAULT_REGION"));
    expect(of("TEMPORAL_ADDRESS")).toMatchObject({ value: "cloud:7233", source: fromProfile });
    expect(of("TEMPORAL_API_KEY")).toMatchObject({ value: "set", source: fromProfile });
    expect(of("TEMPORAL_TLS")).toMatchObject({ value: "on", source: fromProfile });
    expect(of("REMIT_POLL_INTERVAL_MS")).toMatchObject({
      value: "2000",
      source: { kind: "default", where: null },
    });
  });

  test("has the stack's file as its source, where a stack runs, and its own variables beside it", () => {
    writeStack(STACK);
    const { shown } = showSettings({ env: { REMIT_LEASE_MS: "9000" }, cwd, needs: [] });
    const sources = Object.fromEntries(shown.map(({ name, source }) => [name, source]));
    const where = join(cwd, ".remit", "stack.json");
    expect(sources["DATABASE_URL"]).toEqual({ kind: "stack", where });
    expect(sources["AWS_REGION"]).toEqual({ kind: "stack", where });
    expect(sources["REMIT_LEASE_MS"]).toEqual({ kind: "environment", where: "REMIT_LEASE_MS" });
  });

  test("shows no secret, wherever one may stand", () => {
    const env = {
      ...ENVIRONMENT,
      DATABASE_URL: "postgres://app:s3cret@db/remit?sslmode=require&password=s3cret",
      REMIT_ADMIN_DATABASE_URL: "postgres://owner:s3cret@db/remit",
      AWS_ENDPOINT_URL: "http://s3cret:s3cret@127.0.0.1:4566?token=s3cret",
      AWS_ACCESS_KEY_ID: "s3cret",
      AWS_SECRET_ACCESS_KEY: "s3cret",
      AWS_SESSION_TOKEN: "s3cret",
      TEMPORAL_API_KEY: "s3cret",
    };
    const { shown } = showSettings({ env, cwd, needs: [] });
    expect(JSON.stringify(shown)).not.toContain("s3cret");
    expect(shown.find(({ name }) => name === "DATABASE_URL")?.value).toBe(
      "postgres://app:***@db/remit?sslmode=require&password=***",
    );
  });

  test("is refused with all problems where the configuration is wrong, and looked at all the same", () => {
    const env = {
      ...ENVIRONMENT,
      REMIT_LEASE_MS: "x",
      REMIT_LOG_LEVEL: "loud",
      REMIT_LEESE_MS: "1",
    };
    expect(() => showSettings({ env, cwd, needs: [] })).toThrow(/REMIT_LEASE_MS.*REMIT_LOG_LEVEL/);
    const view = inspectSettings({ env, cwd });
    expect(view.problems).toHaveLength(2);
    expect(view.unread).toEqual(["REMIT_LEESE_MS"]);
    expect(view.settings?.databaseUrl).toBe(ENVIRONMENT.DATABASE_URL);
  });

  test("is looked at also where two targets stand against each other", () => {
    writeStack(STACK);
    const view = inspectSettings({ env: { ...ENVIRONMENT }, cwd });
    expect(view).toMatchObject({
      settings: null,
      problems: [expect.stringContaining("DATABASE_URL")],
    });
  });
});

describe("docs/configuration.md", () => {
  test("names each variable that is read, and no other", () => {
    const read = new Set<string>();
    const env = new Proxy<Record<string, string | undefined>>(
      {},
      {
        get: (_target, name) => {
          read.add(String(name));
          return undefined;
        },
      },
    );
    refusalOf({ env });
    expect(new Set(documentedVariables())).toEqual(read);
  });

  test("is all that docs/deploy.md draws from, beside what Temporal and AWS read themselves", () => {
    const page = readFileSync(join(__dirname, "../../docs/deploy.md"), "utf8");
    const names = page.match(/\b(DATABASE_URL|(REMIT|TEMPORAL|AWS)_[A-Z_]+)\b/g) ?? [];
    expect(names.length).toBeGreaterThan(20);
    expect(names.filter((name) => !isVariable(name))).toEqual([]);
  });
});
