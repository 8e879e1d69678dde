import { workerEnvironment } from "../../src/local/worker.ts";

const TARGETS = {
  databaseUrl: "postgres://remit:secret@127.0.0.1:1/remit",
  temporalAddress: "127.0.0.1:2",
  temporalNamespace: "default",
  temporalUiUrl: "http://127.0.0.1:3",
  awsEndpointUrl: "http://127.0.0.1:4",
  awsRegion: "us-east-1",
  topicArn: "topic",
  ledgerQueueUrl: "queue",
  ledgerDlqUrl: "dlq",
};

describe("workerEnvironment", () => {
  test("holds the stack's targets and nothing of the caller's AWS, Temporal or database", () => {
    const env = workerEnvironment({
      targets: TARGETS,
      dir: "/data",
      env: {
        HOME: "/home/me",
        AWS_PROFILE: "production",
        AWS_SESSION_TOKEN: "token",
        TEMPORAL_API_KEY: "key",
        DATABASE_URL: "postgres://production/remit",
        REMIT_TOPIC_ARN: "production",
        REMIT_ADMIN_DATABASE_URL: "postgres://production/remit",
        REMIT_LEASE_MS: "1000",
        NODE_OPTIONS: "--inspect",
      },
    });

    // Where Node keeps compiled code is the one thing that a test run itself may or may not have.
    const { NODE_COMPILE_CACHE: _cache, ...told } = env;
    expect(Object.keys(told).toSorted()).toEqual([
      "AWS_ACCESS_KEY_ID",
      "AWS_ENDPOINT_URL",
      "AWS_REGION",
      "AWS_SECRET_ACCESS_KEY",
      "DATABASE_URL",
      "HOME",
      "PATH",
      "REMIT_LEASE_MS",
      "REMIT_LEDGER_DLQ_URL",
      "REMIT_LEDGER_QUEUE_URL",
      "REMIT_TEMPORAL_UI_URL",
      "REMIT_TOPIC_ARN",
      "TEMPORAL_ADDRESS",
      "TEMPORAL_CONFIG_FILE",
      "TEMPORAL_NAMESPACE",
    ]);
    expect(env["REMIT_TOPIC_ARN"]).toBe("topic");
    expect(env["DATABASE_URL"]).toBe(TARGETS.databaseUrl);
  });
});
