import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { parse } from "yaml";
import { loadClientConfigProfile } from "@temporalio/envconfig";
import { SEARCH_ATTRIBUTES } from "../../src/domain/search-attributes.ts";
import { misnamed } from "../support/command-lines.ts";
import { stagesOf } from "../support/dockerfile.ts";
import { isVariable } from "../support/variables.ts";

const ROOT = join(__dirname, "../..");
const read = (file: string): string => readFileSync(join(ROOT, file), "utf8");

interface Service {
  readonly image?: string;
  readonly build?: { readonly target: string };
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly volumes?: readonly string[];
  readonly stop_grace_period?: string;
}

const compose = parse(read("compose.yaml"), { merge: true }) as {
  services: Record<string, Service>;
  volumes: Record<string, unknown>;
};
const services = Object.entries(compose.services);
const ours = services.filter(([, { build }]) => build?.target === "remit");
const stages = stagesOf(read("Dockerfile"));
const environmentOfImage = stages
  .flatMap(({ instructions }) => instructions)
  .filter(({ keyword }) => keyword === "ENV")
  .map(({ rest }) => rest.split("=")[0] ?? "");

describe("compose.yaml", () => {
  test("runs commands that exist, with options that exist", () => {
    expect(ours.map(([name]) => name)).toEqual(["worker", "migrate", "topology"]);
    expect(ours.map(([, { command = [] }]) => misnamed(command))).toEqual([null, null, null]);
  });

  test("sets variables that are read, and all that a worker needs", () => {
    const names = ours.flatMap(([, { environment = {} }]) => Object.keys(environment));
    expect(names.filter((name) => !isVariable(name))).toEqual([]);
    expect(Object.keys(compose.services["worker"]?.environment ?? {})).toEqual(
      expect.arrayContaining(["DATABASE_URL", "REMIT_TOPIC_ARN", "REMIT_LEDGER_QUEUE_URL"]),
    );
  });

  test("waits only for services that are there, and for health only where there is a check", () => {
    const waits = services.flatMap(([, { depends_on = {} }]) => Object.entries(depends_on));
    const unfulfilled = waits.filter(([name, { condition }]) => {
      const other = compose.services[name];
      return condition === "service_healthy"
        ? other?.healthcheck === undefined
        : condition !== "service_completed_successfully" || other === undefined;
    });
    expect(waits.length).toBeGreaterThan(3);
    expect(unfulfilled).toEqual([]);
  });

  test("builds stages of the Dockerfile and mounts volumes and files that are there", () => {
    const targets = services.flatMap(([, { build }]) => build?.target ?? []);
    const sources = services.flatMap(([, { volumes = [] }]) =>
      volumes.map((volume) => volume.split(":")[0] ?? ""),
    );
    const isThere = (source: string): boolean =>
      source.startsWith("./") ? existsSync(join(ROOT, source)) : source in compose.volumes;
    expect(stages.map(({ name }) => name)).toEqual(expect.arrayContaining(targets));
    expect(sources.filter((source) => !isThere(source))).toEqual([]);
  });

  test("logs in as the roles of deploy/roles.sql, the worker without the owner's rights", () => {
    const roles = read("deploy/roles.sql");
    const urlOf = (service: string, name: string): URL =>
      new URL(compose.services[service]?.environment?.[name] ?? "");
    const logins = [
      [urlOf("worker", "DATABASE_URL"), "remit_app"],
      [urlOf("migrate", "REMIT_ADMIN_DATABASE_URL"), "remit_owner"],
    ] as const;
    for (const [{ username, password }, group] of logins) {
      expect(roles).toMatch(new RegExp(`CREATE ROLE ${username} LOGIN.* PASSWORD '${password}';`));
      expect(roles).toContain(`GRANT ${group} TO ${username};`);
    }
  });

  test("gives Temporal each search attribute, and names topic and queues as the setup does", () => {
    const { command = [] } = compose.services["temporal"] ?? {};
    expect(command.filter((word) => word.startsWith("--search-attribute="))).toEqual(
      SEARCH_ATTRIBUTES.map((name) => `--search-attribute=${name}=Keyword`),
    );
    const { environment = {} } = compose.services["worker"] ?? {};
    expect(environment["REMIT_TOPIC_ARN"]).toContain(
      `:${environment["AWS_REGION"]}:000000000000:remit-events`,
    );
    expect(environment["REMIT_LEDGER_QUEUE_URL"]).toMatch(/\/000000000000\/remit-ledger$/);
    expect(environment["REMIT_LEDGER_DLQ_URL"]).toMatch(/\/000000000000\/remit-ledger-dlq$/);
  });

  test("asks the worker's readiness where the image answers it, and stops it after its own limit", () => {
    const { healthcheck, stop_grace_period } = compose.services["worker"] ?? {};
    const image = read("Dockerfile");
    expect(healthcheck?.test.at(-1)).toContain("http://127.0.0.1:8080/readyz");
    expect(image).toContain("ENV REMIT_HEALTH_PORT=8080");
    expect(image).toContain("ENV REMIT_HEALTH_ADDRESS=0.0.0.0");
    expect(stop_grace_period).toBe("30s");
  });
});

describe("the health checks of compose.yaml", () => {
  test.each(["worker", "broker"])(
    "of the %s pass on 200 and fail on 503 and silence",
    async (name) => {
      const [, , ...command] = compose.services[name]?.healthcheck?.test ?? [];
      const exits: unknown[] = [];
      for (const status of [200, 503, null]) {
        const server = createServer((_request, response) => response.writeHead(status ?? 0).end());
        await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
        const { port } = server.address() as AddressInfo;
        if (status === null) server.close();
        const words = command.map((word) => word.replace(/127\.0\.0\.1:\d+/, `127.0.0.1:${port}`));
        exits.push(await exitOf(words));
        server.close();
      }
      expect(exits).toEqual([0, 1, 1]);
    },
  );

  async function exitOf(words: readonly string[]): Promise<unknown> {
    return await new Promise((settle) => {
      execFile(process.execPath, words, (error) => settle(error === null ? 0 : error.code));
    });
  }
});

describe("the Dockerfile", () => {
  test("sets variables that are read, runs a command that exists, and not as root", () => {
    const foreign = /^(NODE_ENV|FAUXQS_)/;
    expect(environmentOfImage.filter((name) => !foreign.test(name) && !isVariable(name))).toEqual(
      [],
    );
    const last = stages.at(-1)?.instructions ?? [];
    const value = (keyword: string): string =>
      last.findLast((instruction) => instruction.keyword === keyword)?.rest ?? "";
    expect(misnamed(JSON.parse(value("CMD")) as string[])).toBeNull();
    expect(value("ENTRYPOINT")).toBe('["node", "/remit/src/cli/main.ts"]');
    expect(value("USER")).toBe("node");
  });

  test("takes the stand-in of package.json's version", () => {
    const { devDependencies } = JSON.parse(read("package.json")) as {
      devDependencies: Record<string, string>;
    };
    expect(read("Dockerfile")).toContain(`fauxqs@${devDependencies["fauxqs"]}`);
  });
});

describe("docs/deploy.md", () => {
  const page = read("docs/deploy.md");
  const blocks = (language: string): string[] =>
    [...page.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(
      ([, text = ""]) => text,
    );

  test("registers each search attribute", () => {
    const names = [...page.matchAll(/--name (\w+) --type Keyword/g)].map(([, name]) => name);
    expect(names).toEqual([...SEARCH_ATTRIBUTES]);
  });

  test("has profiles that Temporal's own reader takes", () => {
    const [cloud, mtls] = blocks("toml").map((text) =>
      loadClientConfigProfile({
        profile: /\[profile\.(\w+)\]/.exec(text)?.[1] ?? "",
        configSource: { data: Buffer.from(text) },
        configFileStrict: true,
        disableEnv: true,
      }),
    );
    expect(cloud).toMatchObject({ namespace: "payments.a1b2c", apiKey: "…" });
    expect(mtls).toMatchObject({
      address: "payments.a1b2c.tmprl.cloud:7233",
      tls: {
        clientCert: { path: "/etc/remit/temporal.pem" },
        clientKey: { path: "/etc/remit/temporal.key" },
      },
    });
  });

  test("has a Deployment that runs a command that exists and is probed where the image answers", () => {
    const deployment = blocks("yaml")
      .map(
        (text) =>
          parse(text) as {
            kind?: string;
            spec: {
              template: {
                metadata: { annotations: Record<string, string> };
                spec: {
                  terminationGracePeriodSeconds: number;
                  containers: {
                    args: string[];
                    env: { name: string; value: string }[];
                    ports: { containerPort: number }[];
                  }[];
                };
              };
            };
          },
      )
      .find(({ kind }) => kind === "Deployment");
    const pod = deployment?.spec.template.spec;
    const container = pod?.containers[0];
    const grace = container?.env.find(({ name }) => name === "REMIT_SHUTDOWN_GRACE_MS");
    expect(misnamed(container?.args ?? [])).toBeNull();
    expect(container?.ports[0]?.containerPort).toBe(8080);
    expect(deployment?.spec.template.metadata.annotations).toMatchObject({
      "prometheus.io/path": "/metrics",
      "prometheus.io/port": "8080",
    });
    expect(Number(grace?.value)).toBeLessThan((pod?.terminationGracePeriodSeconds ?? 0) * 1_000);
  });

  test.each([
    ["remit aws setup", ["topics", "queues"]],
    ["role `relay`", ["sns-publisher"]],
    ["role `ledger`", ["sqs-receiver", "queue-depths", "queue-retention"]],
  ])("allows %s what its code calls, and nothing else", (title, files) => {
    const called = files.flatMap((file) => actionsOf(read(`src/messaging/${file}.ts`)));
    const section = page.slice(page.search(new RegExp(`^For .*${title}.*:$`, "m")));
    const [, policy = "{}"] = /```json\n(.*?)```/s.exec(section) ?? [];
    const { Statement } = JSON.parse(policy) as { Statement: { Action: string[] }[] };
    expect(Statement.flatMap(({ Action }) => Action).toSorted()).toEqual(
      [...new Set(called)].toSorted(),
    );
  });
});

/** The IAM action of each command that a file imports from an SDK client: a batch needs the right to one. */
function actionsOf(source: string): string[] {
  return [...source.matchAll(/import \{([^}]*)\} from "@aws-sdk\/client-(sns|sqs)"/g)].flatMap(
    ([, names = "", service]) =>
      [...names.matchAll(/(\w+?)(Batch)?Command\b/g)].map(([, action]) => `${service}:${action}`),
  );
}
