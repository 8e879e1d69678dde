import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../../src/local/ports.ts";
import { RULES_FILE } from "../support/alert-rules.ts";
import { eventually } from "../support/eventually.ts";
import { findPrometheus } from "./prometheus-binaries.ts";
import { scaleRules } from "./scaled-rules.ts";

export interface FiringAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly state: "pending" | "firing";
}

export interface PrometheusServer {
  /** Who is scraped from now on: `host:port`. */
  readonly scrape: (targets: readonly string[]) => void;
  /** Pending and firing ones of this name. */
  readonly alerts: (name: string) => Promise<FiringAlert[]>;
  readonly stop: () => Promise<void>;
}

/** A Prometheus of its own on loopback: scrapes and evaluates the real rules each second, a minute of them in a second. */
export async function startPrometheus(dir: string): Promise<PrometheusServer> {
  mkdirSync(dir, { recursive: true });
  const targetsFile = join(dir, "targets.json");
  const scrape = (targets: readonly string[]): void => {
    // In one step: half a file is no file to Prometheus.
    writeFileSync(`${targetsFile}.new`, JSON.stringify([{ targets }]));
    renameSync(`${targetsFile}.new`, targetsFile);
  };
  scrape([]);
  writeFileSync(join(dir, "rules.yaml"), scaleRules(readFileSync(RULES_FILE, "utf8")));
  writeFileSync(join(dir, "prometheus.yaml"), CONFIGURATION);
  const url = `http://127.0.0.1:${await freePort()}`;
  const child = spawn(
    "/bin/sh",
    [
      "-c",
      ENDS_WITH_ITS_STDIN,
      "sh",
      findPrometheus(process.env),
      `--config.file=${join(dir, "prometheus.yaml")}`,
      `--storage.tsdb.path=${join(dir, "data")}`,
      `--web.listen-address=${url.slice("http://".length)}`,
      "--log.level=warn",
    ],
    { stdio: ["pipe", "ignore", "pipe"] },
  );
  let log = "";
  child.stderr.on("data", (text) => (log += String(text)));
  await eventually(
    async () => {
      if (child.exitCode !== null) throw new Error(`prometheus ended:\n${log}`);
      const { ok } = await fetch(`${url}/-/ready`);
      if (!ok) throw new Error(`prometheus isn't ready:\n${log}`);
    },
    { timeoutMs: 30_000 },
  );
  return {
    scrape,
    alerts: async (name) => {
      const answer = await fetch(`${url}/api/v1/alerts`);
      const { data } = (await answer.json()) as { data: { alerts: FiringAlert[] } };
      return data.alerts.filter(({ labels }) => labels["alertname"] === name);
    },
    stop: async () => {
      const closed = once(child, "close");
      child.stdin.end();
      await closed;
    },
  };
}

/** So that it doesn't outlive a test process that is killed. */
const ENDS_WITH_ITS_STDIN = 'exec 3<&0; "$@" </dev/null & cat <&3 >/dev/null; kill $!; wait $!';

const CONFIGURATION = `
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
  external_labels:
    remit_docs: https://git.example/remit/blob/main/
rule_files: [rules.yaml]
scrape_configs:
  - job_name: remit
    file_sd_configs:
      - files: [targets.json]
        refresh_interval: 1s
`;
